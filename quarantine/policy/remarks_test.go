package policy_test

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/quarantine/policy"
)

func TestRemarks(t *testing.T) {
	for _, name := range []string{"fulfillment.yaml", "whatsapp-send.yaml"} {
		for _, r := range mustParse(t, name).Remarks() {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for code, change := range map[string]func(p *policy.Policy){
		policy.RemarkOwner:   func(p *policy.Policy) { p.DefaultOwner = "" },
		policy.RemarkWord:    func(p *policy.Policy) { p.Queues[0].Words.Crash = "oom" },
		policy.RemarkHorizon: func(p *policy.Policy) { p.Queues[0].Horizon = p.Queues[0].Retention - time.Second },
		policy.RemarkJitter:  func(p *policy.Policy) { p.Queues[0].Jitter = 0 },
		policy.RemarkTimeout: func(p *policy.Policy) { p.Queues[0].Timeout = 31 * time.Minute },
	} {
		p := mustParse(t, "fulfillment.yaml")
		change(p)
		got := p.Remarks()
		if len(got) != 1 || got[0].Code != code || got[0].Text == "" || got[0].Advice == "" || got[0].Subject == "" {
			t.Errorf("%s: %+v", code, got)
		}
	}
}

package policy

// Home is the one queue whose worker moves messages aside into this one; ok is
// false when there is none, or more than one.
func (p *Policy) Home(quarantine string) (home string, ok bool) {
	for _, q := range p.Queues {
		if q.Quarantine != quarantine {
			continue
		}
		if home != "" {
			return "", false
		}
		home = q.Name
	}
	return home, home != ""
}

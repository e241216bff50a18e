package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine/worker"
)

// Exit statuses. Those below 80 are named by sysexits(3).
const (
	exitDone       = 0
	exitPermanent  = 65 // EX_DATAERR
	exitSystemic   = 69 // EX_UNAVAILABLE
	exitDefect     = 70 // EX_SOFTWARE
	exitTransient  = 75 // EX_TEMPFAIL
	exitDuplicate  = 80
	exitRejected   = 81
	exitAmbiguous  = 82
	exitCannotExec = 126 // what shells say of a command that is no program
	exitNoCommand  = 127 // and of one that is not there
)

// classOfExit says what an exit status means; others are unclassified.
var classOfExit = map[int]string{
	exitPermanent: event.Permanent.String(), exitSystemic: event.Systemic.String(), exitDefect: event.ConsumerDefect.String(),
	exitTransient: event.Transient.String(), exitDuplicate: duplicate, exitRejected: event.BusinessRejection.String(),
	exitAmbiguous: event.AmbiguousOutcome.String(), exitCannotExec: event.Systemic.String(), exitNoCommand: event.Systemic.String(),
}

// grace is how long a command that is to end, or whose children hold its output
// open, is waited for.
const grace = 2 * time.Second

// Command makes a handler of a program that is started for each message. Its
// first word is the program, which must be there.
func Command(words []string) (worker.Handler, error) {
	if len(words) == 0 {
		return nil, fmt.Errorf("no command: %w", ErrHandler)
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrHandler)
	}
	return func(ctx context.Context, m *worker.Message) error { return start(ctx, path, words[1:], m) }, nil
}

// start is one message.
func start(ctx context.Context, path string, args []string, m *worker.Message) error {
	cmd := exec.CommandContext(ctx, path, args...)
	out, errs := &tail{most: maxAnswer}, &tail{most: 512}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(m.Body), out, errs
	cmd.Env = os.Environ()
	for _, f := range facts(m) {
		cmd.Env = append(cmd.Env, variableName(f.name)+"="+f.value)
	}
	// A group of its own, so that what the command has started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = grace
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case cmd.ProcessState == nil:
		return worker.Systemic("", 0, fmt.Errorf("the command does not start: %w", err)).WithCode("unreachable")
	}
	s := read(lastLine(out.kept))
	code := cmd.ProcessState.ExitCode()
	switch {
	case code == exitDone:
		m.Effect = s.Reference
		return nil
	case code < 0:
		// A command that a signal ended said nothing that counts.
		return &worker.Failure{Class: event.Unclassified, Code: "signal", Err: errors.New(say("the command was ended by a signal ("+cmd.ProcessState.String()+")", errs.kept))}
	}
	return s.failure(classOfExit[code], strconv.Itoa(code), 0, say(fmt.Sprintf("the command ended with exit status %d", code), errs.kept))
}

package event

import (
	"fmt"
	"strconv"
	"strings"
)

// EnvelopeNo is the dense number of an envelope inside one store, from 1.
// Outside the store an envelope is named by its ULID.
type EnvelopeNo uint64

// GenerationNo is the dense number of a generation inside one store, from 1.
type GenerationNo uint32

// Position addresses a member of a cohort in release order, from 0.
type Position uint32

// Try counts the publishes of one member, from 1.
type Try uint8

// MaxTries bounds the publishes of one member within a generation.
const MaxTries = 32

// IntentID names one durable decision to publish.
type IntentID struct {
	Gen GenerationNo
	Pos Position
	Try Try
}

// String formats an intent as people and commands write it: "4/17/1".
func (i IntentID) String() string {
	return fmt.Sprintf("%d/%d/%d", i.Gen, i.Pos, i.Try)
}

// ParseIntentID is the inverse of IntentID.String.
func ParseIntentID(s string) (IntentID, error) {
	parts := strings.Split(s, "/")
	if len(parts) == 3 {
		g, err1 := strconv.ParseUint(parts[0], 10, 32)
		p, err2 := strconv.ParseUint(parts[1], 10, 32)
		t, err3 := strconv.ParseUint(parts[2], 10, 8)
		id := IntentID{GenerationNo(g), Position(p), Try(t)}
		if err1 == nil && err2 == nil && err3 == nil && g > 0 && t > 0 && id.String() == s {
			return id, nil
		}
	}
	return IntentID{}, fmt.Errorf("intent %q: want GENERATION/POSITION/TRY, as in 4/17/1", s)
}

// Subject is what a record is about. Zero means none.
type Subject struct {
	Env EnvelopeNo
	Gen GenerationNo
}

func (s *Subject) visit(c *Coder) {
	Num(c, "env", &s.Env)
	Num(c, "gen", &s.Gen)
}

// Actor is who caused a record.
type Actor struct {
	As      string // name that the actor asserted; proves nothing
	Auth    string // how the subject is known: "os", "token", "oidc", "system", "demo"
	Role    string // role under which the act was allowed
	Subject string // stable id of the person or machine
}

func (a *Actor) visit(c *Coder) {
	Text(c, "as", &a.As)
	Text(c, "auth", &a.Auth)
	Text(c, "role", &a.Role)
	Text(c, "sub", &a.Subject)
}

// System is the actor of everything that redrive does by itself.
var System = Actor{Auth: "system", Subject: "redrive"}

package quarantine

import (
	"bytes"
	"encoding/binary"

	"github.com/redrivehq/redrive/ledger"
)

// Word is the number of a text that many envelopes share: a reason, an owner,
// a queue, a type. Zero is the empty text.
type Word uint16

// otherWord stands for every text that came after the table was full, so that
// a hostile producer cannot grow it without end.
const otherWord Word = 0xffff

// OtherText is what is shown for a text that came after the table was full. It
// is the name of nothing.
const OtherText = "(other)"

const maxWordLen = 255

var (
	bucketWord   = ledger.Bucket{Name: "envelope.word", Append: true}
	bucketWordOf = ledger.Bucket{Name: "envelope.wordof"}
)

// WordText returns the text of a word.
func WordText(r ledger.Reader, w Word) string {
	switch w {
	case 0:
		return ""
	case otherWord:
		return OtherText
	}
	return string(r.Get(bucketWord, wordKey(w)))
}

// FindWord returns the number of a text; ok is false when no envelope has it.
func FindWord(r ledger.Reader, text string) (w Word, ok bool) {
	if text == "" {
		return 0, true
	}
	b := r.Get(bucketWordOf, []byte(clipWord(text)))
	if len(b) != 2 {
		return 0, false
	}
	return Word(binary.BigEndian.Uint16(b)), true
}

// Words lists all texts with their numbers.
func Words(r ledger.Reader) map[Word]string {
	out := map[Word]string{0: "", otherWord: OtherText}
	r.Scan(bucketWord, nil, func(k, v []byte) bool {
		out[Word(binary.BigEndian.Uint16(k))] = string(v)
		return true
	})
	return out
}

func clipWord(text string) string { return text[:min(len(text), maxWordLen)] }

func wordKey(w Word) []byte { return binary.BigEndian.AppendUint16(nil, uint16(w)) }

// word returns the number of a text, adding it when it is new.
func word(w ledger.Writer, text string) (Word, error) {
	if n, ok := FindWord(w, text); ok {
		return n, nil
	}
	next := Word(1)
	if k, _ := w.Last(bucketWord); k != nil {
		next = Word(binary.BigEndian.Uint16(k)) + 1
	}
	if next == otherWord {
		return otherWord, nil
	}
	b := bytes.Clone([]byte(clipWord(text)))
	if err := w.Put(bucketWord, wordKey(next), b); err != nil {
		return 0, err
	}
	return next, w.Put(bucketWordOf, b, wordKey(next))
}

// Package safetext makes text from messages safe to print on a terminal.
package safetext

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes control characters, escape sequences, bidirectional overrides
// and invisible characters visible as escapes, so that no message can move the
// cursor, set a title, or look like another one. Line feeds and tabs become
// escapes too: the result is one line.
func Clean(s string) string {
	if !needsCleaning(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			b.WriteString(`\x`)
			b.WriteString(strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case visible(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		i += n
	}
	return b.String()
}

// Block is Clean for text of several lines: line feeds stay.
func Block(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

func needsCleaning(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !visible(r) {
			return true
		}
	}
	return false
}

// visible excludes controls, formats (bidi, zero width), surrogates, private
// use and all separators but the plain space.
func visible(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Z, r) && !unicode.Is(unicode.C, r)
}

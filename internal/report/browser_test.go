package report_test

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/report"
)

// browser is Debian's chromium without a way out: every request goes to a proxy
// of the test, which only writes down what was asked for.
type browser struct {
	t     *testing.T
	dir   string
	proxy string
	mu    sync.Mutex
	asked []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	b := &browser{t: t, dir: t.TempDir()}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line := make([]byte, 512)
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			n, _ := c.Read(line) // the request line is enough
			first, _, _ := strings.Cut(string(line[:n]), "\r\n")
			b.mu.Lock()
			b.asked = append(b.asked, first)
			b.mu.Unlock()
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	b.proxy = l.Addr().String()
	return b
}

// run opens a page and returns what chromium writes to stdout.
func (b *browser) run(page string, args ...string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, "page.html")
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
		"--proxy-server=http://" + b.proxy, "--proxy-bypass-list=<-loopback>", "--user-data-dir=" + filepath.Join(b.dir, "profile")}, args...)
	cmd := exec.CommandContext(ctx, "chromium", append(args, "file://"+path)...)
	cmd.Env = append(os.Environ(), "HOME="+b.dir, "XDG_CONFIG_HOME="+b.dir, "XDG_CACHE_HOME="+b.dir)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("chromium (make install-test installs it): %v\n%s", err, stderr.String())
	}
	return out.String()
}

// requests are those that a page made: the name of the host is one of ours.
func (b *browser) requests() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.asked {
		if strings.Contains(line, ".test") || strings.Contains(line, "127.0.0.1") {
			out = append(out, line)
		}
	}
	return out
}

// picture opens a page in a window of a size and takes a picture of it.
func (b *browser) picture(page string, size string) image.Image {
	b.t.Helper()
	file := filepath.Join(b.dir, "page.png")
	b.run(page, "--window-size="+size, "--screenshot="+file)
	f, err := os.Open(file)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // was only read
	img, err := png.Decode(f)
	if err != nil {
		b.t.Fatal(err)
	}
	return img
}

// pixels counts the points of exactly one colour.
func pixels(img image.Image, want color.RGBA) (n int) {
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			if color.RGBAModel.Convert(img.At(x, y)) == want {
				n++
			}
		}
	}
	return n
}

// The page opens in a real browser that reaches nobody, asks for nothing, runs
// nothing, and shows its plots; what tries to be more than text is text.
func TestPageInABrowser(t *testing.T) {
	b := newBrowser(t)
	// What the proxy would see, if the page asked.
	b.run(`<!doctype html><img src="http://leak.test/x.png">`, "--dump-dom")
	if len(b.requests()) != 1 {
		t.Fatalf("the proxy saw %q of a page that asks once", b.requests())
	}
	evil := sample(strings.Join(append(hostile, `<img src="http://hostile.test/x.png">`), " "))
	var page bytes.Buffer
	if err := report.HTML(&page, evil, began); err != nil {
		t.Fatal(err)
	}
	dom := b.run(page.String(), "--dump-dom", "--virtual-time-budget=2000")
	for _, want := range []string{"&lt;script&gt;document.title=", "<title>Generation 7 · settling</title>", `<polyline class="confirmed"`, `<rect class="requarantined"`} {
		if !strings.Contains(dom, want) {
			t.Errorf("the document lacks %s", want)
		}
	}
	for _, bad := range []string{"<script", "<img", "onerror=\"", "onload=\""} {
		if strings.Contains(dom, bad) {
			t.Errorf("the document has %s", bad)
		}
	}
	var plain bytes.Buffer
	if err := report.HTML(&plain, sample("plain"), began); err != nil {
		t.Fatal(err)
	}
	for size, least := range map[string]int{"1200,2400": 3000, "360,3200": 800} {
		img := b.picture(plain.String(), size)
		for name, c := range map[string]color.RGBA{"publishes begun": {0x8f, 0xb0, 0xd3, 255}, "succeeded": {0x4c, 0x9a, 0x6a, 255}, "came back": {0xc8, 0x55, 0x3d, 255}} {
			if n := pixels(img, c); n < least/10 {
				t.Errorf("at %s only %d points show %s", size, n, name)
			}
		}
	}
	if got := b.requests(); len(got) != 1 {
		t.Errorf("the page asked for %q", got[1:])
	}
}

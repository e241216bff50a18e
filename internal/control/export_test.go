package control

import (
	"context"

	"github.com/redrivehq/redrive/ledger"
	"github.com/redrivehq/redrive/ledger/event"
	"github.com/redrivehq/redrive/quarantine"
)

// Judge lets tests and benchmarks prepare captures.
func (c *Controller) Judge() (*quarantine.Judge, error) { return c.judge() }

// Pin lets tests begin after the first contact with the broker.
func (c *Controller) Pin(ctx context.Context, p quarantine.Pin) error { return c.pin(ctx, "", p) }

// CaptureBatch lets benchmarks fill a store without a broker.
func (c *Controller) CaptureBatch(b quarantine.Batch) error {
	_, err := c.log.Update(context.Background(), ledger.Request{Actor: event.System}, func(v ledger.View) ([]event.Event, error) {
		return quarantine.Capture(v, c.o.Keys, b, c.o.Stamps)
	})
	return err
}

// ForecastOf is for tests.
var ForecastOf = forecastOf

// Differences is for tests.
var Differences = differences

// WatchedBy lists the signals of a manifest.
var WatchedBy = watchedBy

// Package demo is a small world of order fulfilment in which a redrive can be
// lived through: a producer, and a consumer with a bug that reports outcomes.
// It speaks to the broker through the same ports as the product.
package demo

package redrive

import "math/big"

// z values in hundredths: 1.96 for the 95 % interval, 2.58 where many looks at
// once, one for each kind of message, would otherwise cry wolf.
const (
	z95     = 196
	zStrata = 258
)

// wilsonAbove reports whether the lower bound of Wilson's interval for bad of n
// is above permille thousandths, exactly. It solves the score equation instead
// of taking a root: the bound is above p when bad/n is above p and
// (bad − n·p)² > z²·n·p·(1−p).
func wilsonAbove(bad, n, permille, z uint64) bool {
	if n == 0 || bad > n || bad*1000 <= permille*n {
		return false
	}
	// In thousandths: (1000·bad − n·l)² · 10⁴ > (100z)² · n · l · (1000 − l).
	d := new(big.Int).SetUint64(bad*1000 - permille*n)
	left := new(big.Int).Mul(d, d)
	left.Mul(left, big.NewInt(10_000))
	right := new(big.Int).SetUint64(z * z)
	right.Mul(right, new(big.Int).SetUint64(n))
	right.Mul(right, new(big.Int).SetUint64(permille*(1000-min(permille, 1000))))
	return left.Cmp(right) > 0
}

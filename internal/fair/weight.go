package fair

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MinWeight is the least weight. Beyond the bounds, tags would be too inexact to add single
	// permits.
	MinWeight = 0.001
	// MaxWeight is the highest weight.
	MaxWeight = 1_000_000
	// MaxTenant is the maximum length of a tenant's name, in bytes.
	MaxTenant = 128
)

// CheckWeight says what is wrong with a weight.
func CheckWeight(w float64) error {
	if !(w >= MinWeight && w <= MaxWeight) { // false for NaN, too
		return fmt.Errorf("invalid weight %v: want a number from %v to %d", w, MinWeight, MaxWeight)
	}
	return nil
}

// CheckTenant says what is wrong with the name of a tenant.
func CheckTenant(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the tenant is empty")
	case len(name) > MaxTenant:
		return fmt.Errorf("the tenant has %d bytes: want %d at most", len(name), MaxTenant)
	case !utf8.ValidString(name):
		return fmt.Errorf("the tenant is not valid UTF-8: %.40q", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the tenant has control characters: %.40q", name)
	}
	return nil
}

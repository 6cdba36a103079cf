//go:build !race

package throttle

const withRace = false

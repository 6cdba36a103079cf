//go:build race

package throttle

// withRace tells that the race detector watches. It makes the Lua of the server in fake time five
// times as slow.
const withRace = true

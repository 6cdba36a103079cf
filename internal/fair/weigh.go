package fair

import _ "embed"

// WeighLua is the script that gives a tenant of a limiter a weight.
//
//go:embed weigh.lua
var WeighLua string

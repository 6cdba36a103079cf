package cli

// Clip cuts a line of a screen to width characters, if there is a width.
func Clip(line string, width int) string {
	if runes := []rune(line); width > 0 && len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}

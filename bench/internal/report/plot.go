package report

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
)

// Plot is the picture of one contended scenario. The upper part shows what callers saw of the
// limit, the lower part what that cost Redis.
type Plot struct {
	Limit    int64
	Interval time.Duration
	Step     time.Duration      // between the points of Seen
	Seen     map[string][]int64 // by peer: permits in the interval up to each step
	Rounds   *figures.Rounds
}

const (
	plotWidth, plotHeight = 22 * vg.Centimeter, 15 * vg.Centimeter
	seenHeight            = 9 * vg.Centimeter
	margin                = 4 * vg.Millimeter
)

// colors distinguish peers, also for people who see few colours.
var colors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, // blue
	color.RGBA{0xe6, 0x9f, 0x00, 0xff}, // orange
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, // purple
}

// WriteSVG draws the plot.
func (p Plot) WriteSVG(out io.Writer) error {
	seen, err := p.seen()
	if err != nil {
		return err
	}
	calls, err := p.dots(figures.CallsPerPermit, "Script calls per permit (log scale)")
	if err != nil {
		return err
	}
	cpu, err := p.dots(figures.CPUPerPermit, "Redis CPU per permit, microseconds (log scale)")
	if err != nil {
		return err
	}
	return write(out, func(inner draw.Canvas) {
		seen.Draw(draw.Crop(inner, 0, 0, plotHeight-seenHeight, 0))
		calls.Draw(draw.Crop(inner, 0, -plotWidth/2, 0, -seenHeight))
		cpu.Draw(draw.Crop(inner, plotWidth/2, 0, 0, -seenHeight))
	})
}

// write draws on a white canvas, within a margin.
func write(out io.Writer, onto func(draw.Canvas)) error {
	canvas := vgsvg.New(plotWidth, plotHeight)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	onto(draw.Crop(whole, margin, -margin, margin, -margin))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// The font is not embedded, and not every system has it. These fonts have the same widths.
	_, err := out.Write(bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")))
	return err
}

// seen shows the permits in the interval up to each time.
func (p Plot) seen() (*plot.Plot, error) {
	g := plot.New()
	g.Title.Text = fmt.Sprintf("Permits used in the last %v, as the callers saw it: what an API would count", p.Interval)
	g.X.Label.Text = "seconds"
	g.Legend.Top, g.Legend.Left, g.Legend.XOffs, g.Legend.Padding = true, true, margin, vg.Points(2)
	most, length := float64(p.Limit), p.Interval.Seconds()
	for i, peer := range p.Rounds.Peers() {
		points := make(plotter.XYs, len(p.Seen[peer]))
		for j, permits := range p.Seen[peer] {
			points[j] = plotter.XY{X: (time.Duration(j) * p.Step).Seconds(), Y: float64(permits)}
			most, length = max(most, points[j].Y), max(length, points[j].X)
		}
		if err := addLine(g, peer, points, draw.LineStyle{Color: colors[i%len(colors)], Width: vg.Points(1.5)}); err != nil {
			return nil, err
		}
	}
	limit := plotter.XYs{{X: 0, Y: float64(p.Limit)}, {X: length, Y: float64(p.Limit)}}
	dashed := draw.LineStyle{Color: color.Black, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}
	if err := addLine(g, fmt.Sprintf("the limit, %d", p.Limit), limit, dashed); err != nil {
		return nil, err
	}
	g.X.Min, g.X.Max, g.X.Tick.Marker = 0, length, ticks(length, 1)
	g.Y.Min, g.Y.Max, g.Y.Tick.Marker = 0, most*1.5, ticks(most*1.5, float64(p.Limit)/2) // with room for the legend
	sans(g)
	return g, nil
}

func addLine(g *plot.Plot, name string, points plotter.XYs, style draw.LineStyle) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("plot %s: %w", name, err)
	}
	line.LineStyle = style
	g.Add(line)
	g.Legend.Add(name, line)
	return nil
}

// ticks are at multiples of step up to most.
func ticks(most, step float64) plot.ConstantTicks {
	var at plot.ConstantTicks
	for x := 0.; x <= most; x += step {
		at = append(at, plot.Tick{Value: x, Label: number(x)})
	}
	return at
}

// dots shows one figure of each peer. It draws dots because bars begin at zero, and a log scale
// has no zero.
func (p Plot) dots(m figures.Metric, title string) (*plot.Plot, error) {
	g := plot.New()
	g.Title.Text = title
	g.X.Scale, g.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	low, high := math.Inf(1), math.Inf(-1)
	peers := p.Rounds.Peers()
	for i, peer := range peers {
		x, ok := p.Rounds.Figure(peer, m)
		if !ok || x <= 0 {
			continue
		}
		low, high = min(low, x), max(high, x)
		at := plotter.XYs{{X: x, Y: float64(len(peers) - 1 - i)}}
		dot, err := plotter.NewScatter(at)
		if err != nil {
			return nil, err
		}
		dot.GlyphStyle = draw.GlyphStyle{Color: colors[i%len(colors)], Radius: vg.Points(5), Shape: draw.CircleGlyph{}}
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: []string{number(x)}})
		if err != nil {
			return nil, err
		}
		label.Offset = vg.Point{X: vg.Points(9), Y: vg.Points(-3)}
		label.TextStyle[0].Font.Variant = "Sans"
		g.Add(dot, label)
	}
	if low > high {
		return nil, fmt.Errorf("plot: no peer has a figure for %q", m)
	}
	names := make([]string, len(peers))
	for i, peer := range peers {
		names[len(peers)-1-i] = peer
	}
	g.NominalY(names...)
	g.Y.Min, g.Y.Max = -0.5, float64(len(peers))-0.5
	g.X.Min = math.Pow(10, math.Floor(math.Log10(low)))
	g.X.Max = math.Pow(10, math.Ceil(math.Log10(high*3)))
	sans(g)
	return g, nil
}

// sans sets a plot in the typeface of user interfaces.
func sans(g *plot.Plot) {
	g.Title.TextStyle.Font.Variant = "Sans"
	g.Legend.TextStyle.Font.Variant = "Sans"
	for _, axis := range []*plot.Axis{&g.X, &g.Y} {
		axis.Label.TextStyle.Font.Variant = "Sans"
		axis.Tick.Label.Font.Variant = "Sans"
	}
}

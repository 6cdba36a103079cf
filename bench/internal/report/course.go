package report

import (
	"image/color"
	"io"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Course is a picture of limits that change. The upper part shows what each rule allows and
// what the API allows. The lower part shows how many requests the API refused, cut off at an
// eighth of the upper part.
type Course struct {
	Title string
	Step  time.Duration
	Cap   []float64 // by step
	Most  float64   // where the picture is cut off
	Lines []Line
}

// Line is one rule.
type Line struct {
	Name           string
	Limit, Refused []float64 // by step
}

// courseColors has one color more than colors.
var courseColors = append(colors[:len(colors):len(colors)], color.RGBA{0x00, 0x9e, 0x73, 0xff}) // green

// WriteSVG draws the picture.
func (c Course) WriteSVG(out io.Writer) error {
	limits, refused := plot.New(), plot.New()
	limits.Title.Text = c.Title
	limits.Y.Label.Text, refused.Y.Label.Text = "limit", "refused"
	refused.X.Label.Text = "seconds"
	length := float64(len(c.Cap)) * c.Step.Seconds()
	most := max(c.Most/8, 1) // the few refusals of one rule must be visible beside the many of another
	for i, l := range c.Lines {
		style := draw.LineStyle{Color: courseColors[i%len(courseColors)], Width: vg.Points(1.5)}
		if err := addLine(limits, l.Name, c.points(l.Limit, c.Most), style); err != nil {
			return err
		}
		if err := addLine(refused, l.Name, c.points(l.Refused, most), style); err != nil {
			return err
		}
	}
	dashed := draw.LineStyle{Color: color.Black, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}
	if err := addLine(limits, "what the API accepts", c.points(c.Cap, c.Most), dashed); err != nil {
		return err
	}
	limits.Legend.Top, limits.Legend.Padding = true, vg.Points(2)
	refused.Legend = plot.NewLegend()
	limits.Y.Min, limits.Y.Max = 0, c.Most
	refused.Y.Min, refused.Y.Max = 0, most
	for _, g := range []*plot.Plot{limits, refused} {
		g.X.Min, g.X.Max, g.X.Tick.Marker = 0, length, ticks(length, 10)
		sans(g)
	}
	return write(out, func(inner draw.Canvas) {
		limits.Draw(draw.Crop(inner, 0, 0, plotHeight-seenHeight, 0))
		refused.Draw(draw.Crop(inner, 0, 0, 0, -seenHeight))
	})
}

// points are the points of a line, cut off at most.
func (c Course) points(values []float64, most float64) plotter.XYs {
	points := make(plotter.XYs, len(values))
	for i, v := range values {
		points[i] = plotter.XY{X: (time.Duration(i+1) * c.Step).Seconds(), Y: min(v, most)}
	}
	return points
}

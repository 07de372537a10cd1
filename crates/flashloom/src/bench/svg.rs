//! Line charts as SVG: what the plots of `bench` need and no more.

use std::fmt::Write;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By powers of ten.
    Log,
    /// By powers of two, each of which is marked.
    Depths,
    /// Percentiles: each step leaves a tenth of what the one before left.
    Nines,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub x: (String, Scale),
    pub y: (String, Scale),
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;

/// Colours that people who see few of them tell apart (Okabe and Ito, 2008).
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// A range of values and where it is on the page.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// The value on an even axis.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log | Self::Depths => value.max(f64::MIN_POSITIVE).log10(),
            Self::Nines => -(1.0 - value / 100.0).max(1e-12).log10(),
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|times| times * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let (low, high) = match scale {
            Scale::Linear => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            Scale::Log => {
                let low = 10f64.powf(low.max(1e-9).log10().floor());
                (low, 10f64.powf(high.max(1e-9).log10().ceil()).max(low * 10.0))
            }
            Scale::Depths => (low.max(1.0), high.max(low.max(1.0) * 2.0)),
            Scale::Nines => (0.0, high.max(90.0)),
        };
        Self { scale, low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let (low, high) = (self.scale.place(self.low), self.scale.place(self.high));
        let share = (self.scale.place(value) - low) / (high - low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Where there are marks, and what is written there.
    fn marks(&self) -> Vec<(f64, String)> {
        let within = |value: &f64| (self.low..=self.high * 1.000_001).contains(value);
        let times = |factor: f64| {
            let first = Some(self.low);
            std::iter::successors(first, move |value| Some(value * factor)).take_while(within)
        };
        match self.scale {
            Scale::Linear => {
                let step = round_step(self.high / 6.0);
                let marks = std::iter::successors(Some(0.0), |value| Some(value + step));
                marks.take_while(within).map(|value| (value, short(value))).collect()
            }
            Scale::Log => times(10.0).map(|value| (value, short(value))).collect(),
            Scale::Depths => times(2.0).map(|value| (value, short(value))).collect(),
            Scale::Nines => [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999]
                .into_iter()
                .filter(within)
                .map(|value| (value, value.to_string()))
                .collect(),
        }
    }
}

/// A number with few digits: `1.5k`, `250`, `0.1`.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        big if big >= 1e9 => (value / 1e9, "G"),
        big if big >= 1e6 => (value / 1e6, "M"),
        big if big >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // To six decimals, so that a sum of steps does not show its rounding.
    format!("{}{unit}", (scaled * 1e6).round() / 1e6)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Chart {
    /// The chart with what it is of in its title.
    pub fn of(self, what: &str) -> Self {
        Self { title: format!("{}: {what}", self.title), ..self }
    }

    /// The chart as a document of its own.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Axis::new(self.x.1, points().map(|point| point.0), (LEFT, WIDTH - RIGHT));
        let y = Axis::new(self.y.1, points().map(|point| point.1), (HEIGHT - BOTTOM, TOP));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
            escaped(&self.title)
        );
        self.grid(&mut out, &x, &y);
        for (index, line) in self.lines.iter().enumerate() {
            draw(&mut out, &x, &y, line, index);
        }
        out.push_str("</svg>\n");
        out
    }

    fn grid(&self, out: &mut String, x: &Axis, y: &Axis) {
        for (value, text) in x.marks() {
            let at = x.at(value);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                y.from,
                y.from + 18.0
            );
        }
        for (value, text) in y.marks() {
            let at = y.at(value);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                x.to,
                LEFT - 8.0,
                at + 4.0
            );
        }
        let (middle, half) = ((x.from + x.to) / 2.0, (y.from + y.to) / 2.0);
        let _ = writeln!(
            out,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(18 {half:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 14.0,
            escaped(&self.x.0),
            escaped(&self.y.0)
        );
    }
}

fn draw(out: &mut String, x: &Axis, y: &Axis, line: &Line, index: usize) {
    let colour = COLOURS[index % COLOURS.len()];
    let dashes = if index < COLOURS.len() { "" } else { " stroke-dasharray=\"6 3\"" };
    let places: Vec<String> = line
        .points
        .iter()
        .filter(|point| point.0.is_finite() && point.1.is_finite())
        .map(|point| format!("{:.1},{:.1}", x.at(point.0), y.at(point.1)))
        .collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>",
        places.join(" ")
    );
    // Few points are measurements that somebody wants to see one by one.
    if places.len() <= 32 {
        for place in places.iter().filter_map(|place| place.split_once(',')) {
            let _ = writeln!(
                out,
                "<circle cx=\"{}\" cy=\"{}\" r=\"3\" fill=\"{colour}\"/>",
                place.0, place.1
            );
        }
    }
    let (left, row) = (WIDTH - RIGHT + 16.0, (0..index).fold(TOP + 8.0, |row, _| row + 18.0));
    let _ = writeln!(
        out,
        "<line x1=\"{left:.1}\" y1=\"{row:.1}\" x2=\"{:.1}\" y2=\"{row:.1}\" stroke=\"{colour}\" \
         stroke-width=\"2\"{dashes}/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        left + 20.0,
        left + 26.0,
        row + 4.0,
        escaped(&line.name)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x: Scale, y: Scale, points: &[(f64, f64)]) -> Chart {
        let line = Line { name: "a < b & c".to_owned(), points: points.to_vec() };
        let axis = |scale| ("what".to_owned(), scale);
        Chart { title: "\"t\"".to_owned(), x: axis(x), y: axis(y), lines: vec![line] }
    }

    #[test]
    fn points_are_where_their_values_say() {
        let svg =
            chart(Scale::Depths, Scale::Log, &[(1.0, 10.0), (16.0, 1000.0), (4.0, 100.0)]).svg();
        // The ends of both axes, and the middle of both.
        assert!(svg.contains("points=\"84.0,404.0 650.0,44.0 367.0,224.0\""), "{svg}");
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains("&quot;t&quot;"));
    }

    #[test]
    fn axes_are_marked_in_round_numbers() {
        let marks = |scale, values: &[f64]| {
            let axis = Axis::new(scale, values.iter().copied(), (0.0, 1.0));
            axis.marks().into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(marks(Scale::Linear, &[3.0, 95.0]), "0 20 40 60 80");
        assert_eq!(marks(Scale::Linear, &[0.6]), "0 0.2 0.4 0.6");
        assert_eq!(marks(Scale::Log, &[30.0, 20_000.0]), "10 100 1000 10k 100k");
        assert_eq!(marks(Scale::Depths, &[1.0, 128.0]), "1 2 4 8 16 32 64 128");
        assert_eq!(marks(Scale::Nines, &[99.99]), "0 50 90 99 99.9 99.99");
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_too() {
        for points in [&[][..], &[(f64::NAN, 1.0)], &[(1.0, 0.0)], &[(5.0, 5.0)]] {
            for scale in [Scale::Linear, Scale::Log, Scale::Depths, Scale::Nines] {
                let svg = chart(scale, scale, points).svg();
                assert!(
                    !svg.contains("NaN") && !svg.contains("inf"),
                    "{scale:?} {points:?}\n{svg}"
                );
            }
        }
    }
}

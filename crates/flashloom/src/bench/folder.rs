//! A result as a directory of files, each for the tools that read its kind.

use std::path::Path;

use load::{Report, export};

use super::plot;
use super::svg::Chart;
use crate::exit::{Exit, Failure, Outcome};

/// Writes one file.
pub fn put(dir: &Path, name: &str, text: &str) -> Outcome {
    let path = dir.join(name);
    std::fs::write(&path, text).map_err(|error| {
        Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
            .help("name a directory that can be written to with --out")
    })
}

/// Makes the directory.
pub fn make(dir: &Path) -> Outcome {
    std::fs::create_dir_all(dir).map_err(|error| {
        Failure::new(Exit::Failed, format!("{}: {error}", dir.display()))
            .help("name a directory that can be made with --out")
    })
}

/// Writes a chart, unless there is nothing on it.
fn draw(dir: &Path, name: &str, chart: &Chart) -> Outcome {
    if chart.lines.iter().all(|line| line.points.is_empty()) {
        return Ok(());
    }
    put(dir, name, &chart.svg())
}

/// Writes everything about `report` into `dir`.
pub fn write(dir: &Path, report: &Report) -> Outcome {
    make(dir)?;
    let json =
        serde_json::to_string_pretty(report).map_err(|error| Failure::new(Exit::Failed, error))?;
    put(dir, "result.json", &format!("{json}\n"))?;
    put(dir, "result.csv", &export::csv(report))?;
    put(dir, "series.csv", &export::series_csv(report))?;
    for (index, job) in report.jobs.iter().enumerate() {
        let number = index + 1;
        for (direction, figures) in export::directions(job) {
            let text = export::hgrm(&figures.clat_ns);
            put(dir, &format!("job{number}-{direction}.hgrm"), &text)?;
        }
        for (log, name) in export::Log::ALL {
            put(dir, &format!("fio_{name}.{number}.log"), &export::fio_log(job, log))?;
        }
    }
    draw(dir, "latency.svg", &plot::latency_percentiles(report))?;
    draw(dir, "latency-over-time.svg", &plot::latency_over_time(report))?;
    draw(dir, "iops-over-time.svg", &plot::iops_over_time(report))?;
    if let Some([iops, latency]) = plot::depths(report) {
        draw(dir, "depth.svg", &iops)?;
        draw(dir, "depth-latency.svg", &latency)?;
    }
    Ok(())
}

//! A job file: `[global]` for what all jobs have in common, a `[[job]]` table for each.

use std::collections::BTreeMap;
use std::path::Path;

use api::value::Refused;
use array::config::{Fault, Faults};
use load::Job;
use serde::Deserialize;
use toml::{Spanned, Value};

use super::spec::Spec;

/// Largest job file, bytes: nobody writes that many jobs, and a wrong file is told early.
const BYTES_MAX: u64 = 1 << 20;

type Table = BTreeMap<Spanned<String>, Spanned<Value>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    global: Table,
    #[serde(default)]
    job: Vec<Spanned<Table>>,
}

/// The jobs of the file at `path`; `base` is what they are where the file says nothing.
///
/// # Errors
/// Every fault found, with its place.
pub fn load(path: &Path, base: &Spec) -> Result<Vec<Job>, Faults> {
    let unreadable = |wrong: String| {
        Faults::unreadable(path, wrong, "name a readable TOML file with --job-file")
    };
    let length = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if length > BYTES_MAX {
        return Err(unreadable(format!("{length} bytes are more than {BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    parse(path, &text, base)
}

/// As [`load`], of the text of a file.
///
/// # Errors
/// As [`load`].
fn parse(path: &Path, text: &str, base: &Spec) -> Result<Vec<Job>, Faults> {
    let mut faults = Vec::new();
    let jobs = match toml::from_str::<Document>(text) {
        Ok(document) => jobs(&document, text, base, &mut faults),
        Err(error) => {
            let wrong = error.message().trim().replace('\n', ", ");
            let right = "write [global] and [[job]] tables, as `flashloom bench --help` shows";
            let span = error.span().unwrap_or(0..0);
            faults.push(Fault::at(text, span, Refused::new(wrong, right)));
            Vec::new()
        }
    };
    if faults.is_empty() {
        return Ok(jobs);
    }
    faults.sort_by_key(|fault| (fault.line, fault.column));
    Err(Faults { file: path.to_owned(), faults })
}

fn jobs(document: &Document, text: &str, base: &Spec, faults: &mut Vec<Fault>) -> Vec<Job> {
    let mut global = base.clone();
    apply(&document.global, &mut global, text, faults);
    if document.job.is_empty() {
        let refused = Refused::new("there is no job in it", "add a [[job]] table");
        faults.push(Fault::at(text, 0..0, refused));
    }
    let mut jobs = Vec::new();
    for (index, table) in document.job.iter().enumerate() {
        let mut spec = global.clone();
        // fio names a job by its section; a table has no name of its own.
        let named = spec.set("name", &format!("job{}", index + 1));
        debug_assert!(named.is_ok(), "every text is a name");
        let before = faults.len();
        apply(table.get_ref(), &mut spec, text, faults);
        if faults.len() > before {
            continue;
        }
        match spec.jobs() {
            Ok(more) => jobs.extend(more),
            Err(refused) => faults.push(Fault::at(text, table.span(), refused)),
        }
    }
    jobs
}

fn apply(table: &Table, spec: &mut Spec, text: &str, faults: &mut Vec<Fault>) {
    for (key, value) in table {
        let meant = match value.get_ref() {
            Value::String(text) => Ok(text.clone()),
            Value::Integer(number) => Ok(number.to_string()),
            Value::Float(number) => Ok(number.to_string()),
            Value::Boolean(flag) => Ok(flag.to_string()),
            Value::Datetime(_) | Value::Array(_) | Value::Table(_) => Err(Refused::new(
                format!("`{}` is a list, a table or a date", key.get_ref()),
                "write text, a number, true or false",
            )),
        };
        let known = super::spec::KEYS.contains(&key.get_ref().replace('_', "-").as_str());
        let span = if known { value.span() } else { key.span() };
        if let Err(refused) = meant.and_then(|meant| spec.set(key.get_ref(), &meant)) {
            faults.push(Fault::at(text, span, refused));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::{Limit, Sizes};
    use std::time::Duration;

    fn parsed(text: &str) -> Result<Vec<Job>, String> {
        parse(Path::new("mixed.toml"), text, &Spec::example()).map_err(|faults| faults.to_string())
    }

    #[test]
    fn jobs_have_what_is_common_and_what_is_theirs() {
        let jobs = parsed(
            "[global]\nruntime = \"30s\"\nbs = 8192\n\n[[job]]\nrw = \"randread\"\niodepth = 4\nnumjobs = 2\n\n\
             [[job]]\nname = \"writer\"\nrw = \"write\"\nbs = \"1m\"\nrate_iops = 100\nverify = true\n",
        )
        .unwrap();
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["job1", "job1", "writer"]);
        assert!(jobs.iter().all(|job| job.limit == Limit::Runtime(Duration::from_secs(30))));
        assert_eq!((jobs[0].sizes.clone(), jobs[0].io_depth), (Sizes::one(8192), 4));
        assert_eq!((jobs[2].sizes.clone(), jobs[2].rate_iops), (Sizes::one(1 << 20), Some(100)));
    }

    #[test]
    fn every_fault_has_its_line_and_what_would_be_right() {
        let told = parsed("[global]\nruntime = \"soon\"\n\n[[job]]\niodept = 3\nbs = [1]\n\n[[job]]\nrw = \"up\"\n")
            .unwrap_err();
        for part in [
            "mixed.toml:2:11: `soon` is not a time",
            " 2 | runtime = \"soon\"",
            "mixed.toml:5:1: a job has no `iodept`",
            "did you mean `iodepth`?",
            "mixed.toml:6:6: `bs` is a list",
            "mixed.toml:9:6: rw `up` is none of",
        ] {
            assert!(told.contains(part), "{part}\n{told}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_told_at_the_job() {
        let told =
            parsed("[[job]]\nbs = \"4k\"\n\n[[job]]\nbs = \"4k\"\noffset = 100\n").unwrap_err();
        assert!(told.starts_with("mixed.toml:4:"), "{told}");
        assert!(told.contains("offset 100"), "{told}");
        assert!(parsed("").unwrap_err().contains("add a [[job]] table"));
        assert!(parsed("[jobs]\n").unwrap_err().starts_with("mixed.toml:1:"));
        assert!(parsed("[[job]]\nbs = \n").unwrap_err().starts_with("mixed.toml:2:"));
    }
}

//! Lists of CPUs, written as the kernel writes them: `0-3`, `0,2,4-7`.

use std::fs;

use api::value::Refused;

use crate::limits::REACTORS;

const RIGHT: &str = "write CPU numbers and ranges, such as 0-3 or 0,2,4-7";

/// Reads a CPU list, in the order given; a CPU named twice is refused.
pub fn parse(text: &str) -> Result<Vec<usize>, Refused> {
    let refuse = |wrong: String| Refused::new(wrong, RIGHT);
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.parse::<usize>().map_err(|_| refuse(format!("\"{text}\" is not a CPU number")))
        };
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return Err(refuse(format!("the range {part} runs backwards")));
        }
        if last - first >= REACTORS || cpus.len() + (last - first) >= REACTORS {
            return Err(refuse(format!("more than {REACTORS} CPUs")));
        }
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(refuse(format!("CPU {cpu} is named twice")));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// Refuses CPUs that this machine does not have online.
pub fn check_online(cpus: &[usize]) -> Result<(), Refused> {
    let Ok(online) = fs::read_to_string("/sys/devices/system/cpu/online") else { return Ok(()) };
    let online = online.trim();
    let Ok(known) = parse(online) else { return Ok(()) };
    match cpus.iter().find(|cpu| !known.contains(cpu)) {
        Some(cpu) => Err(Refused::new(
            format!("CPU {cpu} is not online"),
            format!("the CPUs of this machine are {online}"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        assert_eq!(parse("0-3").unwrap(), [0, 1, 2, 3]);
        assert_eq!(parse("7, 1-2").unwrap(), [7, 1, 2]);
        for bad in ["", "a", "3-1", "0-", "0,0", "1-2,2", "0-9999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        assert!(check_online(&[0]).is_ok());
        assert!(check_online(&[100_000]).unwrap_err().wrong.contains("100000"));
    }
}

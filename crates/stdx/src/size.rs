//! Byte sizes as people write them: `4k`, `16KiB`, `1GiB`, `1GB`, `512`.

/// Parses a byte size. `k`, `m`, `g`, `t` (any case, alone or with `iB`) are powers of 1024;
/// `kB`, `MB`, `GB`, `TB` are powers of 1000.
///
/// # Errors
/// A sentence naming what is wrong with `text`.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a size: start with a whole number, as in 16KiB"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => return Err(format!("`{other}` is not a unit of size: use KiB, MiB, GiB or TiB")),
    };
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` exceeds 64 bits"))
}

/// The shortest exact form in powers of 1024, or one decimal when there is none.
#[must_use]
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut shift = 0;
    while shift + 1 < UNITS.len() && bytes >> (10 * (shift + 1)) > 0 {
        shift += 1;
    }
    let unit = 1u64 << (10 * shift);
    if bytes.is_multiple_of(unit) {
        return format!("{} {}", bytes / unit, UNITS[shift]);
    }
    let tenths = u128::from(bytes) * 10 / u128::from(unit);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[shift])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("16KiB", 16384),
            ("1 GiB", 1 << 30),
            ("1GB", 1_000_000_000),
            ("2t", 2 << 40),
            ("7b", 7),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(parse("KiB").unwrap_err().contains("whole number"));
        assert!(parse("4q").unwrap_err().contains("`q`"));
        assert!(parse("99999999999t").unwrap_err().contains("64 bits"));
        assert!(parse("").is_err());
    }

    #[test]
    fn shown_short() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(4096), "4 KiB");
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(1 << 40), "1 TiB");
        assert_eq!(show(u64::MAX), "16777215.9 TiB");
    }
}

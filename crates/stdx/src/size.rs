//! Byte sizes as people write them: `4k`, `16KiB`, `1.5TiB`, `1GB`, `512`.

/// Parses a byte size. `k`, `m`, `g`, `t`, `p`, `e` (any case, alone or with `iB`) are powers of 1024;
/// `kB`, `MB` and so on are powers of 1000. Parts of a unit are rounded up to whole bytes.
///
/// # Errors
/// A sentence naming what is wrong with `text`.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let after_digits =
        |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text.split_at(after_digits(text));
    let (fraction, unit) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(after_digits(rest)),
        None => ("", rest),
    };
    let is_whole = !rest.starts_with('.');
    let whole: u64 = number
        .parse()
        .ok()
        .filter(|_| is_whole || !fraction.is_empty())
        .ok_or_else(|| format!("`{text}` is not a size: start with a number, as in 16KiB"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "p" | "pib" => 1 << 50,
        "e" | "eib" => 1 << 60,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "pb" => 1_000_000_000_000_000,
        "eb" => 1_000_000_000_000_000_000,
        other => return Err(format!("`{other}` is not a unit of size: use KiB, MiB, GiB or TiB")),
    };
    let too_large = || format!("`{text}` exceeds 64 bits");
    let whole = whole.checked_mul(factor).ok_or_else(too_large)?;
    whole.checked_add(part(fraction, factor)).ok_or_else(too_large)
}

/// The digits behind a point, of a unit of `factor` bytes: what is beyond the digits of a 64-bit number is below a byte.
fn part(digits: &str, factor: u64) -> u64 {
    let (mut numerator, mut denominator) = (0_u128, 1_u128);
    for digit in digits.bytes().take(18) {
        numerator = numerator * 10 + u128::from(digit - b'0');
        denominator *= 10;
    }
    let bytes = (numerator * u128::from(factor)).div_ceil(denominator);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Whether what is written is no power of 1024: kB, MB and so on, or parts of a unit.
#[must_use]
pub fn is_decimal(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let units = ["kb", "mb", "gb", "tb", "pb", "eb"];
    text.contains('.') || units.iter().any(|unit| text.ends_with(unit))
}

/// The shortest exact form in powers of 1024, or one decimal when there is none.
#[must_use]
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
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
            ("4 PiB", 4 << 50),
            ("1EiB", 1 << 60),
            ("1EB", 1_000_000_000_000_000_000),
            ("1.5TiB", 3 << 39),
            ("0.5k", 512),
            ("2.5GB", 2_500_000_000),
            ("0.3b", 1),
            ("7b", 7),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(parse("KiB").unwrap_err().contains("a number"));
        assert!(parse("1.GiB").is_err() && parse(".5GiB").is_err() && parse("1.5.2GiB").is_err());
        assert!(parse("16EiB").unwrap_err().contains("64 bits"));
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
        assert_eq!(show(4 << 50), "4 PiB");
        assert_eq!(show(u64::MAX), "15.9 EiB");
    }
}

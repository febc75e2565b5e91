//! How figures are written for readers: three digits, a unit on each.

/// A whole number with a comma between thousands: `1,234,567`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Seconds of a day.
pub const DAY: f64 = 86_400.0;

/// A duration given in nanoseconds: `870 ns`, `28.1 µs`, `1.23 ms`, `2.50 s`.
#[must_use]
pub fn nanoseconds(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value < 999.5 => return format!("{value:.0} ns"),
        value if value < 999.5e3 => (value / 1e3, "µs"),
        value if value < 999.5e6 => (value / 1e6, "ms"),
        value => (value / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(scaled))
}

/// How long something takes that people wait for, in seconds, at least and at most: `40 s`, `12 min to 3.4 h`.
#[must_use]
pub fn lasting((least, most): (f64, f64)) -> String {
    let time = |seconds: f64| match seconds {
        ..99.5 => format!("{seconds:.0} s"),
        ..5_970.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3_600.0),
    };
    if least < most { format!("{} to {}", time(least), time(most)) } else { time(most) }
}

/// A size in bytes: `512 B`, `27.0 MiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{scaled:.0} B") } else { format!("{} {}", three_digits(scaled), units[unit]) }
}

/// Operations a second: `12,345`, or `3.21` where they are few.
#[must_use]
pub fn rate(value: f64) -> String {
    three_digits(value)
}

/// A rate that was offered: `2,000`, or `200.5` in full, so that two different rates never look alike.
#[must_use]
pub fn offered(value: f64) -> String {
    let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole, and no rate is negative
    if is_whole { count(value as u64) } else { value.to_string() }
}

/// Rounded to three digits, or to a whole number where that has more (`12,345`); below 0.1, three digits after the leading
/// zeros.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small positive places, and a value from 999.5
pub fn three_digits(value: f64) -> String {
    match value {
        value if value > 0.0 && value < 0.0995 => {
            let places = (2.0 - value.log10().floor()).clamp(0.0, 12.0) as usize;
            format!("{value:.places$}")
        }
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        // what is no number is not shown as one
        value if value < 999.5 || !value.is_finite() => format!("{value:.0}"),
        value => count(value.round() as u64),
    }
}

/// Rounded to four digits: of a chart more cannot be seen, and of a rate that is searched for more is noise.
#[must_use]
pub fn four_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powf(3.0 - value.abs().log10().floor());
    // divided by a power of ten, so that it is written in few digits
    if scale >= 1.0 {
        (value * scale).round() / scale
    } else {
        (value * scale).round() * (1.0 / scale).round()
    }
}

/// A share as a percentage: `1.2 %`, `34 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let shown = share * 100.0;
    if shown.abs() < 9.95 { format!("{shown:.1} %") } else { format!("{shown:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_in_the_unit_that_people_plan_by() {
        assert_eq!(lasting((48.0, 48.0)), "48 s");
        assert_eq!(lasting((90.0, 600.0)), "90 s to 10 min");
        assert_eq!(lasting((5_969.0, 36_000.0)), "99 min to 10.0 h");
    }

    #[test]
    fn figures_keep_three_digits_and_their_unit() {
        let shown = [1.0, 870.0, 999.6, 28_100.0, 999_600.0, 1.234e6, 2.5e9, 61e9].map(nanoseconds);
        assert_eq!(shown, ["1 ns", "870 ns", "1.00 µs", "28.1 µs", "1.00 ms", "1.23 ms", "2.50 s", "61.0 s"]);
        assert_eq!([512.0, 2048.0, 28_311_552.0].map(bytes), ["512 B", "2.00 KiB", "27.0 MiB"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.001_16, 0.0995, 1e-30].map(three_digits), ["0.00116", "0.10", "0.000000000000"]);
        assert_eq!([0.0, 3.214, 99.96, 12_345.4].map(rate), ["0.00", "3.21", "100", "12,345"]);
        assert_eq!([2000.0, 1.0, 200.4, 200.1].map(offered), ["2,000", "1", "200.4", "200.1"]);
        assert_eq!([999.4, 999.6, f64::NAN, f64::INFINITY].map(rate), ["999", "1,000", "NaN", "inf"]);
    }
}

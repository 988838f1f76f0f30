//! How long work that is measured will go on, in words.

use std::time::Duration;

/// Share of the work from which its pace is known well enough.
const LEAST_SHARE: f64 = 0.03;

/// Time from which the pace is known well enough.
const LEAST_PASSED: Duration = Duration::from_secs(1);

/// Returns how long work goes on of which a share was done in the time that passed, if it goes on as before: "12 s left".
/// `None` where too little is done to tell.
pub fn time_left(passed: Duration, share: f64) -> Option<String> {
    if passed < LEAST_PASSED || share < LEAST_SHARE {
        return None;
    }
    let seconds = passed.as_secs_f64() * (1.0 / share.min(1.0) - 1.0);
    let seconds = seconds.ceil() as u64;
    let left = match seconds {
        0..100 => format!("{seconds} s"),
        100..600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        600..6000 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    };
    Some(format!("{left} left"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_for_each_share_as_what_is_done() {
        let left = |passed, share| time_left(Duration::from_secs_f64(passed), share);
        assert_eq!(left(0.9, 0.5), None);
        assert_eq!(left(60.0, 0.02), None);
        assert_eq!(left(30.0, 0.75).as_deref(), Some("10 s left"));
        assert_eq!(left(10.0, 1.0).as_deref(), Some("0 s left"));
        assert_eq!(left(60.0, 0.25).as_deref(), Some("3 min 00 s left"));
        assert_eq!(left(601.0, 0.5).as_deref(), Some("11 min left"));
        assert_eq!(left(4000.0, 0.25).as_deref(), Some("3 h 20 min left"));
    }
}

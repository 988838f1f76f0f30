//! Numeric tests written once: each becomes one for candle's CPU device, and under the feature one for a CUDA device.

/// `check` takes a `&Candle`.
#[macro_export]
macro_rules! on_each_device {
    ($($name:ident: $check:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn candle_cpu() {
                $check(&attnscope::ops::Candle::cpu());
            }

            #[cfg(feature = "cuda")]
            #[test]
            fn cuda() {
                let device = attnscope::ops::Candle::cuda(0).expect("a CUDA device");
                $check(&device);
            }
        }
    )*};
}

/// Says how far apart a device was.
#[expect(clippy::print_stderr, reason = "shown with --nocapture")]
pub fn tell(what: &str) {
    eprintln!("furthest apart: {what}");
}

//! WAV files: PCM of 8, 16, 24 and 32 bits and floats, with channels mixed down to one.

use std::io::Cursor;

use hound::{SampleFormat, WavReader};

/// Reads the samples of a file, scaled to between −1 and 1.
///
/// # Errors
/// When the bytes are not a WAV file, are truncated, contain no sound, have a sample rate other than `rate`, or a value is not
/// finite.
pub fn samples_of(bytes: &[u8], rate: usize) -> Result<Vec<f32>, String> {
    if bytes.is_empty() {
        return Err("expected a WAV file, found an empty one".to_owned());
    }
    let cut = |what: &str| format!("the WAV file is cut: {what}");
    let mut reader = WavReader::new(Cursor::new(bytes)).map_err(|e| match e {
        hound::Error::IoError(_) if bytes.starts_with(b"RIFF") => cut("its header is not whole"),
        hound::Error::Unsupported | hound::Error::InvalidSampleFormat => {
            "expected a WAV file of PCM or float samples, found another coding".to_owned()
        }
        other => format!("expected a WAV file, found something else ({other})"),
    })?;
    let spec = reader.spec();
    if spec.sample_rate as usize != rate {
        return Err(format!(
            "expected {rate} samples a second, as the model was trained on, found {}: convert it first, for example with \
             ffmpeg -i IN.wav -ar {rate} OUT.wav",
            spec.sample_rate
        ));
    }
    let n_channels = usize::from(spec.channels);
    if n_channels == 0 || reader.duration() == 0 {
        return Err("expected a sound, found a WAV file without samples".to_owned());
    }
    let n_stated = reader.len() as usize;
    let n_bytes = n_stated.saturating_mul(usize::from(spec.bits_per_sample).div_ceil(8));
    if n_bytes > bytes.len() {
        let problem = format!(
            "its header promises {n_bytes} bytes of samples, the file has {}",
            bytes.len()
        );
        return Err(cut(&problem));
    }
    let samples: Result<Vec<f32>, hound::Error> = match spec.sample_format {
        SampleFormat::Float => reader.samples::<f32>().collect(),
        SampleFormat::Int => {
            let full = 2f64.powi(i32::from(spec.bits_per_sample) - 1);
            let wide = reader.samples::<i32>();
            wide.map(|sample| Ok((f64::from(sample?) / full) as f32))
                .collect()
        }
    };
    let samples = samples.map_err(|e| match e {
        hound::Error::Unsupported | hound::Error::InvalidSampleFormat => format!(
            "expected PCM of 8, 16, 24 or 32 bits or floats of 32, found {} bits",
            spec.bits_per_sample
        ),
        other => cut(&other.to_string()),
    })?;
    if let Some(idx) = samples.iter().position(|sample| !sample.is_finite()) {
        let at = (idx / n_channels) as f64 / rate as f64;
        return Err(format!(
            "sample {} (at {at:.3} s) is {}: expected finite values",
            idx / n_channels,
            samples[idx]
        ));
    }
    let mixed = samples.chunks(n_channels);
    let mean = |frame: &[f32]| {
        let sum: f64 = frame.iter().map(|sample| f64::from(*sample)).sum();
        (sum / n_channels as f64) as f32
    };
    Ok(mixed.map(mean).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hound::{WavSpec, WavWriter};

    fn written(spec: WavSpec, write: impl Fn(&mut WavWriter<&mut Cursor<Vec<u8>>>)) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let mut writer = WavWriter::new(&mut bytes, spec).expect("a writer");
        write(&mut writer);
        writer.finalize().expect("finishes");
        bytes.into_inner()
    }

    const SPEC: WavSpec = WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: SampleFormat::Int,
    };

    #[test]
    fn every_width_gives_values_between_minus_one_and_one() {
        for bits in [8u16, 16, 24, 32] {
            let half = 1i32 << (bits - 2);
            let spec = WavSpec {
                bits_per_sample: bits,
                ..SPEC
            };
            let bytes = written(spec, |writer| {
                for value in [0, half, -half, -half * 2] {
                    writer.write_sample(value).expect("writes");
                }
            });
            let samples = samples_of(&bytes, 16_000).expect("reads");
            assert_eq!(samples, [0.0, 0.5, -0.5, -1.0], "{bits}");
        }
        let spec = WavSpec {
            bits_per_sample: 32,
            sample_format: SampleFormat::Float,
            ..SPEC
        };
        let bytes = written(spec, |writer| {
            for value in [0.25f32, -0.75] {
                writer.write_sample(value).expect("writes");
            }
        });
        assert_eq!(samples_of(&bytes, 16_000).expect("reads"), [0.25, -0.75]);
    }

    #[test]
    fn channels_are_mixed_down() {
        let spec = WavSpec {
            channels: 2,
            ..SPEC
        };
        let bytes = written(spec, |writer| {
            for value in [16_384i16, 0, -16_384, 16_384] {
                writer.write_sample(value).expect("writes");
            }
        });
        assert_eq!(samples_of(&bytes, 16_000).expect("reads"), [0.25, 0.0]);
    }

    #[test]
    fn bytes_that_are_no_sound_are_refused_with_a_reason() {
        let ten = |spec: WavSpec| {
            written(spec, |writer| {
                (0..10i32).for_each(|value| writer.write_sample(value).expect("writes"));
            })
        };
        let whole = ten(SPEC);
        let floats = WavSpec {
            bits_per_sample: 32,
            sample_format: SampleFormat::Float,
            ..SPEC
        };
        let nan = written(floats, |writer| {
            for value in [0.0, f32::NAN] {
                writer.write_sample(value).expect("writes");
            }
        });
        let mut cut_twice = whole.clone();
        cut_twice.truncate(30);
        for (bytes, part) in [
            (Vec::new(), "empty"),
            (
                b"ID3 not a sound at all, but long enough".to_vec(),
                "expected a WAV file",
            ),
            (whole[..whole.len() - 3].to_vec(), "cut"),
            (cut_twice, "cut"),
            (written(SPEC, |_| {}), "without samples"),
            (
                ten(WavSpec {
                    sample_rate: 48_000,
                    ..SPEC
                }),
                "found 48000",
            ),
            (nan, "sample 1 (at 0.000 s) is NaN"),
        ] {
            let said = samples_of(&bytes, 16_000).expect_err("refused");
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

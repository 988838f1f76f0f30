//! PNG and JPEG files → bytes of red, green and blue, rotated as the camera was held.

use std::io::Cursor;
use std::path::Path;

use attnscope_checkpoint::caught::caught;
use attnscope_checkpoint::read_whole;
use attnscope_compute::error::{Error, Result};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Upper limit of a file, in bytes.
const MOST_BYTES: usize = 1 << 28;
/// Upper limits of rows, columns and pixels.
const MOST_SIDE: usize = 1 << 15;
pub(super) const MOST_PIXELS: usize = 1 << 27;
/// Upper limit of bytes that deflate makes of one byte.
const MOST_DEFLATED: usize = 1032;
/// Upper limit of pixels per byte of a JPEG file: each block of 64 takes some bits, and four blocks may share their colours.
const MOST_OF_BYTE: usize = 1024;

/// A picture as bytes. // bytes: [row, column, channel]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    pub height: usize,
    pub width: usize,
    pub n_channels: usize,
    pub bytes: Vec<u8>,
}

impl Image {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is not a PNG or JPEG file, is truncated, or is too large.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = read_whole(path, MOST_BYTES)?;
        Self::decode(&bytes).map_err(|problem| Error::file(path, problem))
    }

    /// The picture of some of its rows and columns, in any order and as often as they are named.
    pub(super) fn of_places(
        &self,
        rows: impl Iterator<Item = usize>,
        columns: impl Iterator<Item = usize> + Clone,
    ) -> Self {
        let n = self.n_channels;
        let (mut bytes, mut height) = (Vec::new(), 0);
        for row in rows {
            height += 1;
            for column in columns.clone() {
                let from = (row * self.width + column) * n;
                bytes.extend_from_slice(&self.bytes[from..from + n]);
            }
        }
        Self {
            height,
            width: columns.count(),
            n_channels: n,
            bytes,
        }
    }

    /// Decodes the bytes of a file; the error says what is wrong with them.
    pub(super) fn decode(bytes: &[u8]) -> std::result::Result<Self, String> {
        let decoder: fn(&[u8]) -> std::result::Result<Self, String> =
            if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
                png
            } else if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
                jpeg
            } else {
                return Err("expected a PNG or JPEG file, found another kind".to_owned());
            };
        let image = caught(|| decoder(bytes)).and_then(|image| image)?;
        if image.bytes.len() != image.height * image.width * image.n_channels
            || image.bytes.is_empty()
        {
            return Err("the picture is empty or cut".to_owned());
        }
        Ok(image)
    }

    /// Converts to colour, without transparency.
    pub fn coloured(self) -> Self {
        let bytes = match self.n_channels {
            1 | 2 => {
                let first = self.bytes.chunks(self.n_channels);
                first.flat_map(|pixel| [pixel[0]; 3]).collect()
            }
            3 => return self,
            n => {
                let pixels = self.bytes.chunks(n);
                pixels.flat_map(|pixel| pixel[..3].to_vec()).collect()
            }
        };
        Self {
            n_channels: 3,
            bytes,
            ..self
        }
    }

    /// Converts to grey, with the weights of ITU-R 601.
    pub fn grey(self) -> Self {
        let bytes = match self.n_channels {
            1 | 2 => {
                let pixels = self.bytes.chunks(self.n_channels);
                pixels.map(|pixel| pixel[0]).collect()
            }
            n => {
                let grey = |pixel: &[u8]| {
                    let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
                    ((19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16) as u8
                };
                self.bytes.chunks(n).map(grey).collect()
            }
        };
        Self {
            n_channels: 1,
            bytes,
            ..self
        }
    }

    /// Rearranges pixels by a map from new to old positions.
    fn rearranged(
        &self,
        height: usize,
        width: usize,
        from: impl Fn(usize, usize) -> (usize, usize),
    ) -> Self {
        let n = self.n_channels;
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for row in 0..height {
            for column in 0..width {
                let (row, column) = from(row, column);
                let at = (row * self.width + column) * n;
                bytes.extend_from_slice(&self.bytes[at..at + n]);
            }
        }
        Self {
            height,
            width,
            n_channels: n,
            bytes,
        }
    }

    /// Rotates the picture upright, by the orientation that the camera recorded.
    fn turned(self, orientation: u16) -> Self {
        let (h, w) = (self.height, self.width);
        match orientation {
            2 => self.rearranged(h, w, |row, column| (row, w - 1 - column)),
            3 => self.rearranged(h, w, |row, column| (h - 1 - row, w - 1 - column)),
            4 => self.rearranged(h, w, |row, column| (h - 1 - row, column)),
            5 => self.rearranged(w, h, |row, column| (column, row)),
            6 => self.rearranged(w, h, |row, column| (h - 1 - column, row)),
            7 => self.rearranged(w, h, |row, column| (h - 1 - column, w - 1 - row)),
            8 => self.rearranged(w, h, |row, column| (column, w - 1 - row)),
            _ => self,
        }
    }
}

fn check_size(height: usize, width: usize) -> std::result::Result<(), String> {
    if height > MOST_SIDE || width > MOST_SIDE || height * width > MOST_PIXELS {
        return Err(format!(
            "expected at most {MOST_PIXELS} pixels, found {width} × {height}"
        ));
    }
    Ok(())
}

fn png(bytes: &[u8]) -> std::result::Result<Image, String> {
    let said = |e: png::DecodingError| format!("is not a PNG file that can be read ({e})");
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(said)?;
    let (width, height) = reader.info().size();
    let (width, height) = (width as usize, height as usize);
    check_size(height, width)?;
    let n_channels = reader.output_color_type().0.samples();
    if reader.info().interlaced {
        let n_bytes = reader.output_buffer_size();
        let n_bytes = n_bytes.ok_or("the picture is too large")?;
        if n_bytes > MOST_DEFLATED * bytes.len() {
            return Err(format!(
                "{} bytes cannot hold {width} × {height} pixels",
                bytes.len()
            ));
        }
        let mut pixels = vec![0; n_bytes];
        let frame = reader.next_frame(&mut pixels).map_err(said)?;
        pixels.truncate(frame.buffer_size());
        return Ok(Image {
            height,
            width,
            n_channels,
            bytes: pixels,
        });
    }
    // Row by row, so that a header with a false size does not allocate memory for missing rows.
    let mut pixels = Vec::new();
    while let Some(row) = reader.next_row().map_err(said)? {
        pixels.extend_from_slice(row.data());
    }
    Ok(Image {
        height,
        width,
        n_channels,
        bytes: pixels,
    })
}

fn jpeg(bytes: &[u8]) -> std::result::Result<Image, String> {
    let options = DecoderOptions::default()
        .set_max_width(MOST_SIDE)
        .set_max_height(MOST_SIDE)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let said = |e| {
        // The library's message may have several lines.
        let why = format!("{e:?}");
        let why: Vec<&str> = why.split_whitespace().collect();
        format!("is not a JPEG file that can be read ({})", why.join(" "))
    };
    decoder.decode_headers().map_err(said)?;
    let (width, height) = decoder.dimensions().ok_or("the picture has no size")?;
    check_size(height, width)?;
    if height * width > MOST_OF_BYTE * bytes.len() {
        return Err(format!(
            "{} bytes cannot hold {width} × {height} pixels",
            bytes.len()
        ));
    }
    let pixels = decoder.decode().map_err(said)?;
    let orientation = decoder.exif().and_then(|exif| orientation(exif));
    let image = Image {
        height,
        width,
        n_channels: 3,
        bytes: pixels,
    };
    if image.bytes.len() != height * width * 3 {
        return Err("the picture is cut".to_owned());
    }
    Ok(image.turned(orientation.unwrap_or(1)))
}

/// The camera's orientation, from EXIF data.
fn orientation(exif: &[u8]) -> Option<u16> {
    const ORIENTATION: u16 = 0x0112;
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let is_little = match exif.get(..2)? {
        b"II" => true,
        b"MM" => false,
        _ => return None,
    };
    let short = |at: usize| -> Option<u16> {
        let bytes: [u8; 2] = exif.get(at..at + 2)?.try_into().ok()?;
        Some(if is_little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        })
    };
    let long = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = exif.get(at..at + 4)?.try_into().ok()?;
        Some(if is_little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        } as usize)
    };
    let first = long(4)?;
    let n_entries = usize::from(short(first)?);
    (0..n_entries)
        .map(|nth| first + 2 + 12 * nth)
        .find(|at| short(*at) == Some(ORIENTATION))
        .and_then(|at| short(at + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_a_rotated_camera_becomes_upright() {
        // Two rows of three pixels.
        let image = Image {
            height: 2,
            width: 3,
            n_channels: 1,
            bytes: vec![1, 2, 3, 4, 5, 6],
        };
        for (orientation, bytes) in [
            (1, [1, 2, 3, 4, 5, 6]),
            (2, [3, 2, 1, 6, 5, 4]),
            (3, [6, 5, 4, 3, 2, 1]),
            (4, [4, 5, 6, 1, 2, 3]),
            (5, [1, 4, 2, 5, 3, 6]),
            (6, [4, 1, 5, 2, 6, 3]),
            (7, [6, 3, 5, 2, 4, 1]),
            (8, [3, 6, 2, 5, 1, 4]),
        ] {
            let turned = image.clone().turned(orientation);
            assert_eq!(turned.bytes, bytes, "{orientation}");
            assert_eq!(turned.height, if orientation < 5 { 2 } else { 3 });
        }
        let exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0";
        assert_eq!(orientation(exif), Some(6));
        assert_eq!(orientation(b"MM\0*\0\0\0\x08\0\x01\x01"), None);
        assert_eq!(orientation(b""), None);
    }

    #[test]
    fn bytes_that_are_no_picture_are_refused() {
        for bytes in [&b""[..], b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"] {
            assert!(Image::decode(bytes).is_err());
        }
    }
}

//! Pictures as sixels: bands of six pixel rows, one colour after the other.

use std::io::{self, Write};

use super::image::Image;

/// Rows of a band.
const BAND: usize = 6;

/// Writes an image at the cursor; transparent pixels keep what was there.
pub fn write(image: &Image, out: &mut impl Write) -> io::Result<()> {
    write!(out, "\x1bP0;1;0q\"1;1;{};{}", image.width, image.height)?;
    let mut is_used = vec![false; image.palette.len()];
    for pixel in &image.pixels {
        is_used[usize::from(*pixel)] = true;
    }
    // Sixel colour components are percentages.
    for (idx, [r, g, b]) in image.palette.iter().enumerate().skip(1) {
        if is_used[idx] {
            let [r, g, b] = [r, g, b].map(|part| (u32::from(*part) * 100 + 127) / 255);
            write!(out, "#{idx};2;{r};{g};{b}")?;
        }
    }
    for band in image.pixels.chunks(BAND * image.width) {
        write_band(image.width, band, out)?;
        // Next band.
        write!(out, "-")?;
    }
    write!(out, "\x1b\\")
}

fn write_band(width: usize, band: &[u8], out: &mut impl Write) -> io::Result<()> {
    let mut colours: Vec<u8> = band.to_vec();
    colours.sort_unstable();
    colours.dedup();
    for colour in colours.into_iter().filter(|colour| *colour != 0) {
        write!(out, "#{colour}")?;
        let bits = |x: usize| {
            let rows = band.chunks(width).enumerate();
            let set = rows.filter(|(_, row)| row.get(x) == Some(&colour));
            set.fold(0u8, |bits, (y, _)| bits | 1 << y)
        };
        let columns: Vec<u8> = (0..width).map(bits).collect();
        for run in columns.chunk_by(|a, b| a == b) {
            let letter = char::from(63 + run[0]);
            match run.len() {
                n @ 1..=3 => write!(out, "{}", letter.to_string().repeat(n))?,
                n => write!(out, "!{n}{letter}")?,
            }
        }
        // Return to the start of the band.
        write!(out, "$")?;
    }
    Ok(())
}

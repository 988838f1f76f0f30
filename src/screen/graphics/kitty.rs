//! Pictures in kitty's protocol: a PNG in parts, replaced in place when it changes.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ratatui::layout::Rect;

use super::image::Image;

/// Id of our only picture.
pub const ID: u32 = 4_207;

/// Bytes of a part.
const PART: usize = 4096;

/// Where the terminal shows a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// At the cursor, below letters.
    Cursor,
    /// In the cells that hold placeholders of a picture with this number.
    Placeholders(u8),
}

/// Writes an image, scaled to an area; the terminal sends no answer and leaves the cursor in place.
pub fn write(
    image: &Image,
    area: Rect,
    placement: Placement,
    out: &mut impl Write,
) -> io::Result<()> {
    let data = STANDARD.encode(png(image)?);
    let mut parts = data.as_bytes().chunks(PART).peekable();
    let (columns, rows) = (area.width, area.height);
    let size = format!("c={columns},r={rows}");
    let mut keys = match placement {
        Placement::Cursor => format!("a=T,f=100,i={ID},p=1,q=2,C=1,{size},z=-1,"),
        Placement::Placeholders(id) => format!("a=T,f=100,i={id},q=2,U=1,{size},"),
    };
    while let Some(part) = parts.next() {
        let more = u8::from(parts.peek().is_some());
        write!(out, "\x1b_G{keys}m={more};")?;
        out.write_all(part)?;
        write!(out, "\x1b\\")?;
        keys.clear();
    }
    Ok(())
}

/// Deletes a picture and frees its memory in the terminal.
pub fn delete(id: u32, out: &mut impl Write) -> io::Result<()> {
    write!(out, "\x1b_Ga=d,d=I,i={id},q=2\x1b\\")
}

/// Encodes the image as PNG; colour 0 is transparent.
pub(super) fn png(image: &Image) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, image.width as u32, image.height as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(image.palette.concat());
    encoder.set_trns(vec![0]);
    let mut writer = encoder.write_header().map_err(io::Error::other)?;
    writer
        .write_image_data(&image.pixels)
        .map_err(io::Error::other)?;
    writer.finish().map_err(io::Error::other)?;
    Ok(bytes)
}

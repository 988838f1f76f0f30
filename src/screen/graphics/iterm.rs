//! Pictures in iTerm2's protocol, which WezTerm supports too: one whole PNG.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ratatui::layout::Rect;

use super::image::Image;
use super::kitty::png;

/// Writes an image at the cursor, scaled to an area.
pub fn write(image: &Image, area: Rect, out: &mut impl Write) -> io::Result<()> {
    let bytes = png(image)?;
    write!(
        out,
        "\x1b]1337;File=inline=1;size={};width={};height={};preserveAspectRatio=0;doNotMoveCursor=1:{}\x07",
        bytes.len(),
        area.width,
        area.height,
        STANDARD.encode(bytes)
    )
}

//! The font of drawings inside a PDF, for text that can be selected and edited.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use pdf_writer::types::{CidFontType, FontFlags, SystemInfo, UnicodeCmap};
use pdf_writer::{Content, Filter, Name, Pdf, Rect, Ref, Str};

use super::Text;
use super::font::{Glyph, advance, file, glyphs_of};

/// The font's name on the page.
pub(super) const FONT_NAME: Name<'static> = Name(b"F1");

const BASE_NAME: Name<'static> = Name(b"DejaVuSans");
const DESCENDANT: Ref = Ref::new(11);
const DESCRIPTOR: Ref = Ref::new(12);
const FILE: Ref = Ref::new(13);
const CHARACTERS: Ref = Ref::new(14);
/// The font dictionary that pages refer to.
pub(super) const FONT: Ref = Ref::new(10);

/// Height and depth of letters in thousandths of the font height, as DejaVu Sans states them.
const ASCENT: f32 = 928.0;
const DESCENT: f32 = -236.0;
const CAP_HEIGHT: f32 = 729.0;

/// Letters that a page uses, by their glyphs.
#[derive(Debug, Default)]
pub(super) struct Letters(BTreeMap<Glyph, char>);

impl Letters {
    /// Writes a line of text as text.
    pub fn write(&mut self, content: &mut Content, text: &Text) {
        let mut ids = Vec::new();
        for (glyph, letter) in glyphs_of(&text.text) {
            ids.extend(glyph.0.to_be_bytes());
            self.0.entry(glyph).or_insert(letter);
        }
        let (x, y, start) = (text.at.0 as f32, text.at.1 as f32, text.start() as f32);
        // The page's y grows downwards, that of letters upwards.
        let matrix = if text.is_upright {
            [0.0, -1.0, -1.0, 0.0, x, y - start]
        } else {
            [1.0, 0.0, 0.0, -1.0, x + start, y]
        };
        content.begin_text();
        content.set_font(FONT_NAME, text.size as f32);
        content.set_text_matrix(matrix);
        content.show(Str(&ids));
        content.end_text();
    }

    /// Adds the font with the widths and characters of the letters that were written.
    pub fn embed(&self, pdf: &mut Pdf) -> io::Result<()> {
        let info = || SystemInfo {
            registry: Str(b"Adobe"),
            ordering: Str(b"Identity"),
            supplement: 0,
        };
        pdf.type0_font(FONT)
            .base_font(BASE_NAME)
            .encoding_predefined(Name(b"Identity-H"))
            .descendant_font(DESCENDANT)
            .to_unicode(CHARACTERS);
        let mut font = pdf.cid_font(DESCENDANT);
        font.subtype(CidFontType::Type2)
            .base_font(BASE_NAME)
            .system_info(info())
            .font_descriptor(DESCRIPTOR)
            .cid_to_gid_map_predefined(Name(b"Identity"));
        let mut widths = font.widths();
        for glyph in self.0.keys() {
            widths.consecutive(glyph.0, [1000.0 * advance(*glyph) as f32]);
        }
        drop(widths);
        drop(font);
        pdf.font_descriptor(DESCRIPTOR)
            .name(BASE_NAME)
            .flags(FontFlags::SYMBOLIC)
            .bbox(Rect::new(0.0, DESCENT, 1000.0, ASCENT))
            .italic_angle(0.0)
            .ascent(ASCENT)
            .descent(DESCENT)
            .cap_height(CAP_HEIGHT)
            .stem_v(90.0)
            .font_file2(FILE);
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(file())?;
        let packed = packed.finish()?;
        pdf.stream(FILE, &packed).filter(Filter::FlateDecode);
        let mut characters = UnicodeCmap::new(Name(b"Letters"), info());
        for (glyph, letter) in &self.0 {
            characters.pair(glyph.0, *letter);
        }
        let characters = characters.finish();
        pdf.cmap(CHARACTERS, &characters);
        Ok(())
    }
}

//! The sizes that a picture processor's file states: of a resized picture, and of one that is filled up.

use attnscope_compute::error::Result;
use attnscope_prompt::Size;
use serde_json::Value;

use super::processor::{Processor, Stated};

impl Stated {
    /// Refuses sides that would be rounded to multiples of a number.
    pub(super) fn check_multiple(&self, size: Size) -> Result<()> {
        const KEY: &str = "ensure_multiple_of";
        let of = self.get(KEY).and_then(Value::as_u64).unwrap_or(1).max(1) as usize;
        match size {
            Size::Exactly(sides) if sides.iter().all(|side| side.is_multiple_of(of)) => Ok(()),
            _ if of == 1 => Ok(()),
            _ => Err(self.wrong(KEY, "a divisor of both sides")),
        }
    }

    /// How a class resizes and crops a picture that leaves a share of smaller pictures, and larger ones whole.
    pub(super) fn of_share(&self, usual: f64) -> Result<(Size, Option<[usize; 2]>)> {
        /// Sides from which on nothing is cropped.
        const WHOLE: usize = 384;
        let side = match self.get("size") {
            None => Some(WHOLE),
            Some(size) => {
                let side = size.get("shortest_edge").unwrap_or(size).as_u64();
                let side = side.filter(|side| (1..=1 << 15).contains(side));
                side.map(|side| side as usize)
            }
        };
        let side =
            side.ok_or_else(|| self.wrong("size", "the shorter edge, a number up to 32768"))?;
        let share = match self.get("crop_pct") {
            None => Some(usual),
            Some(share) => share.as_f64().filter(|share| (0.01..=1.0).contains(share)),
        };
        let share = share.ok_or_else(|| self.wrong("crop_pct", "a share from 0.01 to 1"))?;
        Ok(if side < WHOLE {
            let resized = (side as f64 / share) as usize;
            (Size::Shortest(resized), Some([side; 2]))
        } else {
            (Size::Exactly([side; 2]), None)
        })
    }

    /// Refuses steps of a class that puts pictures on a sheet, if they are left out or turn the picture.
    pub(super) fn check_sheet(&self, class: Processor) -> Result<()> {
        let Size::Sheet(_) = class.size else {
            return Ok(());
        };
        for (key, expected) in [
            ("do_resize", true),
            ("do_thumbnail", true),
            ("do_pad", true),
            ("do_align_long_axis", false),
        ] {
            if self.get(key).is_some_and(|value| *value != expected) {
                return Err(self.wrong(key, &format!("{expected}: other steps are not read")));
            }
        }
        Ok(())
    }

    /// Rows and columns, each or one of them, and the number to whose multiples both are rounded.
    fn in_ratio(&self, class: Processor, usual: usize) -> Result<Size> {
        const KEY: &str = "ensure_multiple_of";
        // In thirty-seconds of a pixel, one of which is a class's default.
        let of = match self.get(KEY) {
            None => usual,
            Some(value) => {
                let of = value.as_f64().map(|of| of * 32.0);
                let of = of.filter(|of| of.fract() == 0.0 && (1.0..=1e6).contains(of));
                of.ok_or_else(|| self.wrong(KEY, "a whole number from 1 to 31250, or 1/32"))?
                    as usize
            }
        };
        let to = match (self.plain_size(class)?, class.size) {
            (Size::Exactly(to), _) | (Size::InRatio { to, .. }, _) => to,
            _ => return Err(self.wrong("size", "height and width, up to 32768")),
        };
        if self.flag("keep_aspect_ratio", class.resizes_values)? {
            return Ok(Size::InRatio { to, of });
        }
        let to = to.map(|side| Size::rounded(side as f64, of));
        if to.contains(&0) {
            return Err(self.wrong(KEY, "a number that leaves at least one row and one column"));
        }
        Ok(Size::Exactly(to))
    }

    /// Rows and columns of a sheet; a list gives columns first.
    fn sheet(&self, usual: [usize; 2]) -> Result<Size> {
        let Some(size) = self.get("size") else {
            return Ok(Size::Sheet(usual));
        };
        let sides = match size.as_array().map(Vec::as_slice) {
            Some([columns, rows]) => [Some(rows), Some(columns)],
            Some(_) => [None, None],
            None => [size.get("height"), size.get("width")],
        };
        let side = |value: Option<&Value>| {
            let side = value.and_then(Value::as_u64)?;
            (1..=1 << 15).contains(&side).then_some(side as usize)
        };
        match sides.map(side) {
            [Some(rows), Some(columns)] => Ok(Size::Sheet([rows, columns])),
            _ => Err(self.wrong("size", "height and width, up to 32768")),
        }
    }

    /// Multiples of merged patches, within the limits of pixels that are stated by themselves or as two edges.
    fn multiple(&self, of: usize, [least, most]: [usize; 2]) -> Result<Size> {
        let kind = ["image_processor_type", "feature_extractor_type"];
        let named = kind.into_iter().find(|key| self.get(key).is_some());
        if let Some(key) = named.filter(|_| self.class().is_none()) {
            let problem = "Qwen2VLImageProcessor: how another class chooses sizes is not known";
            return Err(self.wrong(key, problem));
        }
        let number = |key: &str, inside: Option<&str>, default: usize| {
            let edge = inside.and_then(|edge| {
                let size = self.get("size")?;
                size.get(edge).or(size.get(key))
            });
            match self.get(key).or(edge.filter(|edge| !edge.is_null())) {
                None => Ok(default),
                Some(value) => {
                    let number = value.as_u64().filter(|n| (1..=1 << 40).contains(n));
                    let number = number.and_then(|n| usize::try_from(n).ok());
                    number.ok_or_else(|| self.wrong(key, "a whole number above 0"))
                }
            }
        };
        let is_merged = ["patch_size", "merge_size"]
            .iter()
            .any(|key| self.get(key).is_some());
        let of = if is_merged {
            number("patch_size", None, 14)?.saturating_mul(number("merge_size", None, 2)?)
        } else {
            number("spatial_factor", None, of)?
        };
        Ok(Size::Multiple {
            of,
            least: number("min_pixels", Some("shortest_edge"), least)?,
            most: number("max_pixels", Some("longest_edge"), most)?,
        })
    }

    /// The number whose multiples sides are cut to.
    fn cut(&self, of: usize) -> Result<Size> {
        const KEY: &str = "size_divisor";
        let stated = self.get(KEY).map(|value| {
            let of = value.as_u64().filter(|of| (1..=1 << 15).contains(of));
            of.ok_or_else(|| self.wrong(KEY, "a whole number from 1 to 32768"))
        });
        let of = stated.transpose()?.map_or(of, |of| of as usize);
        Ok(Size::Cut { of })
    }

    /// The number to whose multiples a picture is continued; older files have another key.
    fn mirrored(&self, of: usize) -> Result<Size> {
        let keys = ["size_divisor", "pad_size"];
        let Some(key) = keys.into_iter().find(|key| self.get(key).is_some()) else {
            return Ok(Size::Mirrored { of });
        };
        let of = self.get(key).and_then(Value::as_u64);
        let of = of.filter(|of| (1..=1 << 15).contains(of));
        let of = of.ok_or_else(|| self.wrong(key, "a whole number from 1 to 32768"))?;
        Ok(Size::Mirrored { of: of as usize })
    }

    /// The side of the squares that a picture is filled up to.
    fn filled(&self, of: usize) -> Result<Size> {
        let Some(size) = self.get("size") else {
            return Ok(Size::Filled { of });
        };
        let side = |key: &str| size.get(key).and_then(Value::as_u64);
        let of =
            side("height").filter(|of| side("width") == Some(*of) && (1..=1 << 15).contains(of));
        let wrong = || self.wrong("size", "height and width, equal, up to 32768");
        Ok(Size::Filled {
            of: of.ok_or_else(wrong)? as usize,
        })
    }

    /// Squares of merged patches, and how many there may be.
    fn squares(&self, most: usize) -> Result<Size> {
        let number = |key: &str, default: usize| match self.get(key) {
            None => Ok(default),
            Some(value) => {
                let number = value.as_u64().filter(|n| (1..=1 << 20).contains(n));
                let wrong = || self.wrong(key, "a whole number above 0");
                number.map(|n| n as usize).ok_or_else(wrong)
            }
        };
        Ok(Size::Squares {
            of: number("patch_size", 14)?.saturating_mul(number("merge_size", 2)?),
            most: number("max_image_tokens", most)?,
        })
    }

    /// Multiples of a patch, within a longest side.
    fn within(&self, of: usize, longest: usize) -> Result<Size> {
        let number = |value: &Value| value.as_u64().filter(|n| (1..=1 << 15).contains(n));
        let stated = |key: &str, inside: &str, default: usize| match self.get(key) {
            None => Ok(default),
            Some(value) => {
                // A height that is the width as well limits both sides.
                let side = value
                    .get("height")
                    .filter(|side| value.get("width") == Some(side));
                let found = number(value.get(inside).or(side).unwrap_or(value));
                let wrong = || self.wrong(key, &format!("{inside}, up to 32768"));
                found.map(|n| n as usize).ok_or_else(wrong)
            }
        };
        Ok(Size::Within {
            of: stated("patch_size", "height", of)?,
            longest: stated("size", "longest_edge", longest)?,
        })
    }

    pub(super) fn size(&self, class: Processor) -> Result<Size> {
        if let Size::Multiple { of, least, most } = class.size {
            return self.multiple(of, [least, most]);
        }
        if let Size::Filled { of } = class.size {
            return self.filled(of);
        }
        if let Size::Mirrored { of } = class.size {
            return self.mirrored(of);
        }
        if let Size::Cut { of } = class.size {
            return self.cut(of);
        }
        if let Size::Squares { most, .. } = class.size {
            return self.squares(most);
        }
        if let Size::Within { of, longest } = class.size {
            return self.within(of, longest);
        }
        if let Size::Longest(longest) = class.size {
            return self.longest(longest);
        }
        if let Size::Sheet(usual) = class.size {
            return self.sheet(usual);
        }
        if let Size::InRatio { of, .. } = class.size {
            return self.in_ratio(class, of);
        }
        if let Size::Area { most, of } = class.size {
            return self.area(most, of);
        }
        if let Size::Between { of, .. } = class.size
            && let Some(between) = self.between(of)?
        {
            return Ok(between);
        }
        self.plain_size(class)
    }

    /// Rows and columns, or the shorter side.
    fn plain_size(&self, class: Processor) -> Result<Size> {
        let wrong = || self.wrong("size", "height and width, or shortest_edge, up to 32768");
        let Some(size) = self.get("size") else {
            return Ok(class.size);
        };
        let side = |value: Option<&Value>| -> Option<usize> {
            let side = value?.as_u64()?;
            (1..=1 << 15).contains(&side).then_some(side as usize)
        };
        if let Some(one) = side(Some(size)) {
            // Older files give one number, which some classes apply to the shorter side.
            return Ok(match class.size {
                Size::Exactly(_) | Size::InRatio { .. } => Size::Exactly([one; 2]),
                _ => Size::Shortest(one),
            });
        }
        let has = |key: &str| size.get(key).is_some_and(|value| !value.is_null());
        if has("longest_edge") || has("max_height") || has("max_width") {
            return Err(wrong());
        }
        match (side(size.get("height")), side(size.get("width"))) {
            (Some(height), Some(width)) => Ok(Size::Exactly([height, width])),
            _ => side(size.get("shortest_edge"))
                .map(Size::Shortest)
                .ok_or_else(wrong),
        }
    }

    /// A limit of pixels, stated as that of patches, or of patches that are pooled.
    fn area(&self, most: usize, of: usize) -> Result<Size> {
        let number = |value: Option<&Value>, key: &str, default: usize| match value {
            None => Ok(default),
            Some(value) => {
                let number = value.as_u64().filter(|n| (1..=1 << 20).contains(n));
                let wrong = || self.wrong(key, "a whole number above 0");
                number.map(|n| n as usize).ok_or_else(wrong)
            }
        };
        let side = |axis: &str| {
            let stated = self
                .get("patch_size")
                .map(|all| all.get(axis).unwrap_or(all));
            number(stated, "patch_size", 16)
        };
        let (rows, columns) = (side("height")?, side("width")?);
        if rows != columns {
            return Err(self.wrong("patch_size", "as many rows as columns"));
        }
        let pooled = number(
            self.get("pooling_kernel_size"),
            "pooling_kernel_size",
            of / 16,
        )?;
        let usual = most / (of * of).max(1);
        let of = rows.saturating_mul(pooled).max(1);
        let n = match self.get("max_patches") {
            Some(found) => number(Some(found), "max_patches", usual)?,
            None => number(self.get("max_soft_tokens"), "max_soft_tokens", usual)?,
        };
        Ok(Size::Area {
            most: n.saturating_mul(of * of),
            of,
        })
    }

    /// A length for the shorter side, and a limit for the longer one; `None` if the file states rows and columns, or nothing.
    fn between(&self, of: usize) -> Result<Option<Size>> {
        let Some(size) = self.get("size").filter(|size| size.get("height").is_none()) else {
            return Ok(None);
        };
        let side = |key: &str| {
            let side = size.get(key).and_then(Value::as_u64);
            let side = side.filter(|side| (1..=1 << 15).contains(side));
            let wrong = || self.wrong("size", "shortest_edge and longest_edge, up to 32768");
            side.map(|side| side as usize).ok_or_else(wrong)
        };
        Ok(Some(Size::Between {
            shortest: side("shortest_edge")?,
            longest: side("longest_edge")?,
            of,
        }))
    }

    /// A length for the longer side.
    fn longest(&self, longest: usize) -> Result<Size> {
        let Some(size) = self.get("size") else {
            return Ok(Size::Longest(longest));
        };
        let side = size.get("longest_edge").and_then(Value::as_u64);
        let side = side.filter(|side| (1..=1 << 15).contains(side));
        let wrong = || self.wrong("size", "longest_edge, up to 32768");
        Ok(Size::Longest(side.ok_or_else(wrong)? as usize))
    }

    /// Rows and columns to which a picture is filled up.
    pub(super) fn fill(&self, class: Processor) -> Result<[usize; 2]> {
        let Some(size) = self.get("pad_size") else {
            let Size::Longest(side) = class.size else {
                return Err(self.wrong("pad_size", "height and width"));
            };
            return Ok([side; 2]);
        };
        let side = |key: &str| {
            let side = size.get(key).and_then(Value::as_u64);
            let side = side.filter(|side| (1..=1 << 15).contains(side));
            let wrong = || self.wrong("pad_size", "height and width, up to 32768");
            side.map(|side| side as usize).ok_or_else(wrong)
        };
        Ok([side("height")?, side("width")?])
    }
}

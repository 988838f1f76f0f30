//! Picture preprocessing from `preprocessor_config.json`, with the defaults of the processor's class.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{Filter, PicturePreprocessing, Size};
use serde_json::{Map, Value};

use super::processor_steps::steps;
pub use super::processors::Processor;

/// The file beside the weights; newer ones are a part of another file.
const FILE: &str = "preprocessor_config.json";
const NEWER: (&str, &str) = ("processor_config.json", "image_processor");

/// Reads how pictures are preprocessed; `plain` holds the model's own values, and `model_size` the size that it needs.
///
/// # Errors
/// When a value is impossible, or a step is not known.
pub(super) fn preprocessing(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    class: Processor,
    plain: PicturePreprocessing,
    model_size: Size,
) -> Result<PicturePreprocessing> {
    let Some((name, values)) = stated(checkpoint) else {
        let (resize, fill) = match (class.size, model_size) {
            (Size::Sheet(_), Size::Exactly(whole)) => (Size::Sheet(whole), None),
            (Size::Longest(_), Size::Exactly(whole)) => {
                (Size::Longest(whole[0].max(whole[1])), Some(whole))
            }
            _ => (model_size, None),
        };
        let (shift, rescale) = class.shift();
        let preprocessing = PicturePreprocessing {
            crops_margin: class.crops_margin,
            resize: Some((resize, class.filter)),
            shrinks_by: class.shrinks_by,
            fill,
            has_blue_first: class.has_blue_first,
            rescale,
            standardises: class.standardises,
            mean: class.mean.map(|mean| mean + shift),
            std: class.std,
            ..plain
        };
        let said = format!("{}, as no {FILE} says otherwise", steps(&preprocessing));
        reader.note("picture", said, Origin::Default(FILE.to_owned()));
        return Ok(preprocessing);
    };
    let stated = Stated {
        path: checkpoint.config.path().with_file_name(name),
        values,
    };
    let preprocessing = stated.preprocessing(stated.class_or(class), plain)?;
    reader.note(
        "picture",
        steps(&preprocessing),
        Origin::Key(name.to_owned()),
    );
    Ok(preprocessing)
}

/// The values that a file states, and its name.
fn stated(checkpoint: &Checkpoint) -> Option<(&'static str, Map<String, Value>)> {
    let of_newer = || match checkpoint.sibling_config(NEWER.0)?.remove(NEWER.1) {
        Some(Value::Object(values)) => Some((NEWER.0, values)),
        _ => None,
    };
    // A library's own configuration states the steps beside the model.
    let inside = || match checkpoint.config.get("preprocessor") {
        Some(Value::Object(values)) => Some(("config.json", values.clone())),
        _ => None,
    };
    let stored = checkpoint.sibling_config(FILE).map(|values| (FILE, values));
    stored.or_else(of_newer).or_else(inside)
}

/// Whether a file says how pictures are preprocessed.
pub(super) fn states_preprocessing(checkpoint: &Checkpoint) -> bool {
    stated(checkpoint).is_some()
}

/// The values of a configuration file, with its path.
pub(super) struct Stated {
    path: std::path::PathBuf,
    values: Map<String, Value>,
}

impl Stated {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// The processor class that the file names, whose defaults fill gaps; `None` if it names no known class.
    pub(super) fn class(&self) -> Option<Processor> {
        // Of names that begin alike, the longer one comes first.
        const KNOWN: [(&str, Processor); 40] = [
            ("CLIP", Processor::CLIP),
            ("Apertus1p5", Processor::APERTUS),
            ("Beit", Processor::SIGLIP),
            ("Bit", Processor::CLIP),
            ("Blip", Processor::BLIP),
            ("ConvNext", Processor::CONVNEXT),
            ("DPT", Processor::DPT),
            ("DeformableDetr", Processor::DETR),
            ("DeiT", Processor::DEIT),
            ("Donut", Processor::DONUT),
            ("Emu3", Processor::EMU3),
            ("GLPN", Processor::GLPN),
            ("Gemma4", Processor::GEMMA4),
            ("GotOcr2", Processor::GOT),
            ("Inkling2", Processor::INKLING2),
            ("Kosmos2_5", Processor::KOSMOS),
            ("Llama4", Processor::LLAMA4),
            ("MobileV", Processor::MOBILEVIT),
            ("MuseGlimmer", Processor::MUSE),
            ("Nougat", Processor::NOUGAT),
            ("OwlViT", Processor::OWL),
            ("PPFormulaNet", Processor::FORMULANET),
            ("Pix2Struct", Processor::PIX2STRUCT),
            ("Pixtral", Processor::PIXTRAL),
            ("PromptDepthAnything", Processor::DPT),
            ("Pvt", Processor::PVT),
            ("Qwen2VL", Processor::QWEN),
            ("Sam2", Processor::SAM2),
            ("Sam3", Processor::SAM3),
            ("SamHQ", Processor::SAM),
            ("Sam", Processor::SAM),
            ("Segformer", Processor::SEGFORMER),
            ("Siglip", Processor::SIGLIP),
            ("Swin2SR", Processor::SWIN2SR),
            ("ViT", Processor::VIT),
            ("VideoMAE", Processor::VIDEOMAE),
            ("VitPose", Processor::VITPOSE),
            ("Vivit", Processor::VIVIT),
            ("Yolos", Processor::YOLOS),
            ("ZoeDepth", Processor::ZOEDEPTH),
        ];
        let keys = ["image_processor_type", "feature_extractor_type"];
        let name = keys.into_iter().find_map(|key| self.get(key)?.as_str())?;
        let known = KNOWN.iter().find(|(known, _)| name.starts_with(known));
        known.map(|(_, class)| *class)
    }

    /// The class that the file names, or that of the family; a class that is not known crops nothing unless the file says so.
    fn class_or(&self, family: Processor) -> Processor {
        let named = ["image_processor_type", "feature_extractor_type"];
        let is_named = named.iter().any(|key| self.get(key).is_some());
        let crop = family.crop.filter(|_| !is_named);
        self.class().unwrap_or(Processor { crop, ..family })
    }

    pub(super) fn wrong(&self, key: &str, expected: &str) -> Error {
        let found = self.get(key).unwrap_or(&Value::Null);
        Error::config(
            &self.path,
            key,
            format!("expected {expected}, found {found}"),
        )
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.wrong(key, "true or false")),
        }
    }

    fn preprocessing(
        &self,
        class: Processor,
        plain: PicturePreprocessing,
    ) -> Result<PicturePreprocessing> {
        // Classes like Pixtral's and Emu3's pad to the largest picture of a batch; SAM's fills pictures up.
        let pads = class.resizes_values
            || matches!(
                class.size,
                Size::Within { .. }
                    | Size::Multiple { .. }
                    | Size::Longest(_)
                    | Size::Between { .. }
                    | Size::Sheet(_)
                    | Size::Mirrored { .. }
            );
        let keeps_ratio = matches!(class.size, Size::InRatio { .. });
        self.check_sheet(class)?;
        for key in [
            if pads { "" } else { "do_pad" },
            // A share is cropped already.
            class.share.map_or("", |_| "do_center_crop"),
            if keeps_ratio { "" } else { "keep_aspect_ratio" },
            "do_convert_grayscale",
            "do_reduce_labels",
            "do_image_splitting",
            "crop_to_patches",
            "is_vqa",
        ] {
            if self.flag(key, false)? {
                return Err(self.wrong(key, "false: this step is not read"));
            }
        }
        // A size to fill pictures up to; where there is none, a picture alone stays as it is.
        let filled = match class.size {
            Size::Between { .. } => "pad_size",
            _ => "",
        };
        let of_share = if class.share.is_none() {
            "crop_pct"
        } else {
            ""
        };
        for key in [of_share, "max_num_patches", filled] {
            if self.get(key).is_some() {
                return Err(self.wrong(key, "none: this step is not read"));
            }
        }
        let of_size = match class.size {
            Size::Mirrored { .. } => "do_pad",
            _ => "do_resize",
        };
        let resizes = self.flag(of_size, true)?;
        let share = class.share.filter(|_| resizes);
        let (size, crop) = match share {
            Some(usual) => {
                let (size, crop) = self.of_share(usual)?;
                (Some(size), crop)
            }
            None => {
                let usual = class.crop.is_some() && class.share.is_none();
                let crops = self.flag("do_center_crop", usual)?;
                let crop = crops.then(|| self.crop(class)).transpose()?;
                (resizes.then(|| self.size(class)).transpose()?, crop)
            }
        };
        let resize = match size {
            Some(size) => {
                if !keeps_ratio {
                    self.check_multiple(size)?;
                }
                Some((size, self.filter(class)?))
            }
            None => None,
        };
        let fill = match class.size {
            Size::Longest(_) if self.flag("do_pad", true)? => Some(self.fill(class)?),
            _ => None,
        };
        let (shift, usual) = class.shift();
        let rescales = self.flag("do_rescale", true)?;
        let shift = if rescales && self.flag("offset", class.signed)? {
            shift.max(1.0)
        } else {
            0.0
        };
        let rescale = match (rescales, self.get("rescale_factor")) {
            (false, _) => 1.0,
            (true, None) => usual,
            (true, Some(factor)) => factor
                .as_f64()
                .filter(|factor| factor.is_finite())
                .ok_or_else(|| self.wrong("rescale_factor", "a number"))?,
        };
        let normalises = self.flag("do_normalize", class.normalises)?;
        let (mean, std) = if normalises {
            (
                self.colours("image_mean", class.mean)?,
                self.colours("image_std", class.std)?,
            )
        } else {
            ([0.0; 3], [1.0; 3])
        };
        if std.contains(&0.0) {
            return Err(self.wrong("image_std", "numbers other than 0"));
        }
        Ok(PicturePreprocessing {
            crops_margin: self.flag("do_crop_margin", class.crops_margin)?,
            resize,
            shrinks_by: class.shrinks_by,
            is_framed: class.resizes_values && self.flag("do_pad", true)?,
            resizes_values: class.resizes_values && resizes,
            crop,
            cuts_evenly: self.flag("cuts_evenly", false)?,
            fill,
            has_blue_first: self.flag("do_flip_channel_order", class.has_blue_first)?,
            rescale,
            standardises: class.standardises && normalises,
            mean: [0, 1, 2].map(|channel| mean[channel] + shift),
            std,
            ..plain
        })
    }

    fn filter(&self, class: Processor) -> Result<Filter> {
        match self.get("resample") {
            None => Ok(class.filter),
            Some(number) => number
                .as_u64()
                .and_then(Filter::of_number)
                .filter(|filter| {
                    let is_known = matches!(filter, Filter::Bilinear | Filter::Bicubic);
                    is_known || !class.resizes_values
                })
                .ok_or_else(|| {
                    let all = if class.resizes_values {
                        "2 or 3"
                    } else {
                        "0 to 5"
                    };
                    self.wrong("resample", &format!("the number of a filter, {all}"))
                }),
        }
    }

    fn crop(&self, class: Processor) -> Result<[usize; 2]> {
        let wrong = || self.wrong("crop_size", "a number, or height and width, up to 32768");
        let side = |value: &Value| -> Option<usize> {
            let side = value.as_u64()?;
            (1..=1 << 15).contains(&side).then_some(side as usize)
        };
        match self.get("crop_size") {
            None => class.crop.map(|side| [side; 2]).ok_or_else(wrong),
            Some(one) if one.is_number() => side(one).map(|side| [side; 2]).ok_or_else(wrong),
            Some(both) => {
                let of = |key: &str| both.get(key).and_then(side).ok_or_else(wrong);
                Ok([of("height")?, of("width")?])
            }
        }
    }

    fn colours(&self, key: &str, default: [f32; 3]) -> Result<[f32; 3]> {
        let number = |value: &Value| value.as_f64().map(|n| n as f32).filter(|n| n.is_finite());
        let wrong = || self.wrong(key, "a number for each channel");
        match self.get(key) {
            None => Ok(default),
            Some(Value::Array(values)) => match values.as_slice() {
                [one] => number(one).map(|n| [n; 3]).ok_or_else(wrong),
                [r, g, b] => {
                    let of = |value| number(value).ok_or_else(wrong);
                    Ok([of(r)?, of(g)?, of(b)?])
                }
                _ => Err(wrong()),
            },
            Some(one) => number(one).map(|n| [n; 3]).ok_or_else(wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn preprocessing(text: &str) -> Result<PicturePreprocessing> {
        let Ok(Value::Object(values)) = serde_json::from_str(text) else {
            panic!("an object");
        };
        let stated = Stated {
            path: PathBuf::from(FILE),
            values,
        };
        let plain = PicturePreprocessing::of_patches([16; 2]);
        stated.preprocessing(stated.class().unwrap_or(Processor::VIT), plain)
    }

    #[test]
    fn preprocessor_files_of_every_version_are_read_with_class_defaults() {
        let old =
            preprocessing(r#"{"feature_extractor_type": "ViTFeatureExtractor", "size": 384}"#);
        let old = old.expect("is read");
        assert_eq!(
            old.resize,
            Some((Size::Exactly([384; 2]), Filter::Bilinear))
        );
        assert_eq!((old.crop, old.mean), (None, Processor::VIT.mean));
        let clip = preprocessing(
            r#"{"feature_extractor_type": "CLIPFeatureExtractor", "size": 336, "crop_size": 336}"#,
        );
        let clip = clip.expect("is read");
        assert_eq!(clip.resize, Some((Size::Shortest(336), Filter::Bicubic)));
        assert_eq!(
            (clip.crop, clip.mean),
            (Some([336; 2]), Processor::CLIP.mean)
        );
        let named = |rest: &str| {
            let text = format!(r#"{{"image_processor_type": "ConvNextImageProcessor", {rest}}}"#);
            let read = preprocessing(&text).expect("is read");
            (read.resize.map(|(size, _)| size), read.crop)
        };
        let cropped = named(r#""size": {"shortest_edge": 224}, "crop_pct": 0.8"#);
        assert_eq!(cropped, (Some(Size::Shortest(280)), Some([224; 2])));
        let whole = named(r#""size": 384, "crop_pct": 0.8"#);
        assert_eq!(whole, (Some(Size::Exactly([384; 2])), None));
        let off =
            preprocessing(r#"{"do_resize": false, "do_rescale": false, "do_normalize": false}"#);
        let off = off.expect("is read");
        assert_eq!((off.resize, off.rescale, off.std), (None, 1.0, [1.0; 3]));
    }

    #[test]
    fn multiples_of_merged_patches_come_with_limits_of_pixels_in_either_form() {
        let read = |text: &str| {
            let read = preprocessing(text)?;
            Ok::<_, Error>(read.resize.map(|(size, _)| size))
        };
        let expected = Some(Size::Multiple {
            of: 32,
            least: 1024,
            most: 65_536,
        });
        for sizes in [
            r#""min_pixels": 1024, "max_pixels": 65536"#,
            r#""size": {"shortest_edge": 1024, "longest_edge": 65536}"#,
        ] {
            let text = format!(
                r#"{{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, {sizes}}}"#
            );
            assert_eq!(read(&text).expect("is read"), expected);
        }
    }

    #[test]
    fn a_ratio_is_kept_where_a_file_says_so_and_values_are_resized_in_a_frame() {
        let of = |class: &str, rest: &str| {
            let text = format!(r#"{{"image_processor_type": "{class}ImageProcessor"{rest}}}"#);
            preprocessing(&text).expect("is read")
        };
        let size = |read: PicturePreprocessing| read.resize.map(|(size, _)| size);
        let kept = r#", "keep_aspect_ratio": true, "ensure_multiple_of": 14, "size": {"height": 518, "width": 518}"#;
        for class in ["DPT", "PromptDepthAnything"] {
            let to = [518; 2];
            assert_eq!(
                size(of(class, kept)),
                Some(Size::InRatio { to, of: 14 * 32 })
            );
            let rounded = of(class, r#", "ensure_multiple_of": 100, "size": 260"#);
            assert_eq!(size(rounded), Some(Size::Exactly([300; 2])));
            assert_eq!(size(of(class, "")), Some(Size::Exactly([384; 2])));
        }
        let zoe = of("ZoeDepth", "");
        assert!(zoe.is_framed && zoe.resizes_values);
        let to = [384, 512];
        assert_eq!(size(zoe), Some(Size::InRatio { to, of: 1 }));
        let bare = of("ZoeDepth", r#", "do_pad": false, "do_resize": false"#);
        assert!(!bare.is_framed && !bare.resizes_values && bare.resize.is_none());
    }

    #[test]
    fn classes_of_models_between_convolutions_have_their_own_defaults() {
        let of = |class: &str, rest: &str| {
            let text = format!(r#"{{"image_processor_type": "{class}ImageProcessor"{rest}}}"#);
            preprocessing(&text).expect("is read")
        };
        let emu = of(
            "Emu3",
            r#", "do_pad": true, "min_pixels": 4096, "spatial_factor": 16"#,
        );
        let multiple = |of, least, most| Size::Multiple { of, least, most };
        let size = |read: PicturePreprocessing| read.resize.map(|(size, _)| size);
        assert_eq!(size(emu), Some(multiple(16, 4096, 1 << 20)));
        let apertus = of(
            "Apertus1p5",
            r#", "size": {"min_pixels": 1024, "max_pixels": 4096}"#,
        );
        assert_eq!(size(apertus), Some(multiple(16, 1024, 4096)));
        let mobile = of("MobileViT", r#", "image_mean": [0.5, 0.5, 0.5]"#);
        assert_eq!((mobile.has_blue_first, mobile.mean), (true, [0.0; 3]));
        let turned = of("ViT", r#", "do_flip_channel_order": true"#);
        assert!(turned.has_blue_first);
        assert_eq!(size(of("Swin2SR", "")), Some(Size::Mirrored { of: 8 }));
        assert_eq!(
            size(of("Swin2SR", r#", "pad_size": 4"#)),
            Some(Size::Mirrored { of: 4 })
        );
        assert_eq!(size(of("Swin2SR", r#", "do_pad": false"#)), None);
    }

    #[test]
    fn an_impossible_preprocessor_value_is_refused_and_its_key_named() {
        for (text, key) in [
            (r#"{"size": 0}"#, "size"),
            (r#"{"size": {"longest_edge": 20}}"#, "size"),
            (r#"{"size": {"height": 20}}"#, "size"),
            (r#"{"do_center_crop": true}"#, "crop_size"),
            (r#"{"resample": 9}"#, "resample"),
            (r#"{"image_std": [1, 0, 1]}"#, "image_std"),
            (r#"{"image_mean": [1, 2]}"#, "image_mean"),
            (r#"{"do_pad": true}"#, "do_pad"),
            (r#"{"crop_pct": 0.9}"#, "crop_pct"),
            (
                r#"{"image_processor_type": "ZoeDepthImageProcessor", "resample": 0}"#,
                "resample",
            ),
            (
                r#"{"image_processor_type": "ZoeDepthImageProcessor", "ensure_multiple_of": 0.1}"#,
                "ensure_multiple_of",
            ),
            (r#"{"max_num_patches": 256}"#, "max_num_patches"),
            (r#"{"ensure_multiple_of": 100}"#, "ensure_multiple_of"),
            (r#"{"keep_aspect_ratio": true}"#, "keep_aspect_ratio"),
        ] {
            let said = preprocessing(text).expect_err(text).to_string();
            assert!(said.contains(key) && said.contains("expected"), "{said}");
        }
    }
}

//! Classes of picture processors: what each does to a picture if its file leaves a step open.

use attnscope_prompt::{Filter, Size};

/// Defaults of a processor class.
#[derive(Debug, Clone, Copy)]
pub struct Processor {
    /// The size to which a picture is resized. One that states the longer side fills pictures up to a square besides.
    pub size: Size,
    pub crop: Option<usize>,
    pub filter: Filter,
    pub mean: [f32; 3],
    pub std: [f32; 3],
}

const HALF: [f32; 3] = [0.5; 3];
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];
const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

impl Processor {
    pub const VIT: Self = Self {
        size: Size::Exactly([224; 2]),
        crop: None,
        filter: Filter::Bilinear,
        mean: HALF,
        std: HALF,
    };
    pub const DEIT: Self = Self {
        size: Size::Exactly([256; 2]),
        crop: Some(224),
        filter: Filter::Bicubic,
        ..Self::VIT
    };
    pub const CLIP: Self = Self {
        size: Size::Shortest(224),
        crop: Some(224),
        filter: Filter::Bicubic,
        mean: CLIP_MEAN,
        std: CLIP_STD,
    };
    pub const SIGLIP: Self = Self {
        filter: Filter::Bicubic,
        ..Self::VIT
    };
    pub const BLIP: Self = Self {
        size: Size::Exactly([384; 2]),
        crop: None,
        ..Self::CLIP
    };
    pub const SAM: Self = Self {
        size: Size::Longest(1024),
        mean: IMAGENET_MEAN,
        std: IMAGENET_STD,
        ..Self::VIT
    };
    pub const SAM2: Self = Self {
        size: Size::Exactly([1024; 2]),
        ..Self::SAM
    };
    pub const SAM3: Self = Self {
        size: Size::Exactly([1008; 2]),
        ..Self::VIT
    };
    pub const GOT: Self = Self {
        size: Size::Exactly([384; 2]),
        crop: None,
        ..Self::CLIP
    };
    pub const DPT: Self = Self {
        size: Size::Exactly([384; 2]),
        crop: None,
        filter: Filter::Bicubic,
        ..Self::VIT
    };
    pub const PIXTRAL: Self = Self {
        size: Size::Within {
            of: 16,
            longest: 1024,
        },
        crop: None,
        ..Self::CLIP
    };
    pub const QWEN: Self = Self::CLIP.in_multiples();
    pub const OWL: Self = Self {
        size: Size::Exactly([768; 2]),
        ..Self::BLIP
    };
}

impl Processor {
    /// The class, if it resizes pictures to multiples of merged patches, as Qwen2-VL's does.
    pub const fn in_multiples(self) -> Self {
        Self {
            size: Size::Multiple {
                of: 28,
                least: 56 * 56,
                most: 28 * 28 * 1280,
            },
            crop: None,
            filter: Filter::Bicubic,
            ..self
        }
    }
}

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
    /// Whether bytes become numbers from −1 to 1 before the mean is subtracted.
    pub signed: bool,
    /// Whether the mean and the deviation of a picture are taken; bytes are not rescaled then.
    pub standardises: bool,
    /// Whether the margin of a page is cut off if the file does not say so.
    pub crops_margin: bool,
    /// The filter by which a sheet holds a larger picture, if it is another one.
    pub shrinks_by: Option<Filter>,
    /// Whether colours are turned around, so that blue comes first.
    pub has_blue_first: bool,
    /// Whether a mean is subtracted and a deviation divides if the file does not say so.
    pub normalises: bool,
    /// Whether values are resized and not bytes, from corner to corner, and a picture is framed by its mirror image before.
    pub resizes_values: bool,
    /// The share of the shorter side that is left when smaller pictures are cropped to a square; larger ones are resized to it. `None`
    /// if a class crops otherwise.
    pub share: Option<f64>,
}

const HALF: [f32; 3] = [0.5; 3];
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];
const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

impl Processor {
    /// Bytes become numbers from 0 to 1, and nothing else is done to them.
    pub const PLAIN: Self = Self {
        mean: [0.0; 3],
        std: [1.0; 3],
        ..Self::VIT
    };
    pub const VIT: Self = Self {
        size: Size::Exactly([224; 2]),
        crop: None,
        filter: Filter::Bilinear,
        mean: HALF,
        std: HALF,
        signed: false,
        standardises: false,
        crops_margin: false,
        shrinks_by: None,
        has_blue_first: false,
        normalises: true,
        resizes_values: false,
        share: None,
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
        signed: false,
        standardises: false,
        crops_margin: false,
        shrinks_by: None,
        has_blue_first: false,
        normalises: true,
        resizes_values: false,
        share: None,
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
    pub const SEGFORMER: Self = Self {
        size: Size::Exactly([512; 2]),
        ..Self::SAM
    };
    pub const PVT: Self = Self {
        size: Size::Exactly([224; 2]),
        filter: Filter::Bicubic,
        ..Self::SAM
    };
    pub const CONVNEXT: Self = Self {
        size: Size::Shortest(256),
        crop: Some(224),
        share: Some(0.875),
        ..Self::PVT
    };
    pub const MOBILEVIT: Self = Self {
        size: Size::Shortest(224),
        crop: Some(256),
        filter: Filter::Bicubic,
        has_blue_first: true,
        normalises: false,
        ..Self::PLAIN
    };
    pub const SWIN2SR: Self = Self {
        size: Size::Mirrored { of: 8 },
        normalises: false,
        ..Self::PLAIN
    };
    pub const EMU3: Self = Self {
        size: Size::Multiple {
            of: 8,
            least: 512 * 512,
            most: 1024 * 1024,
        },
        ..Self::QWEN
    };
    pub const APERTUS: Self = Self {
        size: Size::Multiple {
            of: 16,
            least: 128 * 128,
            most: 1400 * 1400,
        },
        filter: Filter::Bicubic,
        ..Self::VIT
    };
    pub const GLPN: Self = Self {
        size: Size::Cut { of: 32 },
        mean: [0.0; 3],
        std: [1.0; 3],
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
    pub const DONUT: Self = Self {
        size: Size::Sheet([2560, 1920]),
        ..Self::VIT
    };
    pub const NOUGAT: Self = Self {
        size: Size::Sheet([896, 672]),
        mean: IMAGENET_MEAN,
        std: IMAGENET_STD,
        crops_margin: true,
        shrinks_by: Some(Filter::Bicubic),
        ..Self::VIT
    };
    pub const FORMULANET: Self = Self {
        size: Size::Sheet([768; 2]),
        mean: [0.7931; 3],
        std: [0.1738; 3],
        ..Self::NOUGAT
    };
    pub const DPT: Self = Self {
        size: Size::InRatio {
            to: [384; 2],
            of: 32,
        },
        crop: None,
        filter: Filter::Bicubic,
        ..Self::VIT
    };
    pub const ZOEDEPTH: Self = Self {
        size: Size::InRatio {
            to: [384, 512],
            of: 1,
        },
        resizes_values: true,
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
    pub const YOLOS: Self = Self {
        size: Size::Between {
            shortest: 800,
            longest: 1333,
            of: 16,
        },
        ..Self::SAM
    };
    pub const DETR: Self = Self {
        size: Size::Between {
            shortest: 800,
            longest: 1333,
            of: 1,
        },
        ..Self::SAM
    };
    pub const INKLING2: Self = Self {
        size: Size::Filled { of: 40 },
        ..Self::VIT
    };
    pub const MUSE: Self = Self {
        size: Size::Squares { of: 28, most: 4096 },
        filter: Filter::Lanczos,
        ..Self::VIT
    };
    pub const VITPOSE: Self = Self {
        size: Size::Exactly([256, 192]),
        ..Self::SAM
    };
    pub const VIDEOMAE: Self = Self {
        size: Size::Shortest(224),
        crop: Some(224),
        ..Self::VIT
    };
    pub const TIMESFORMER: Self = Self {
        mean: IMAGENET_MEAN,
        std: IMAGENET_STD,
        ..Self::VIDEOMAE
    };
    pub const VIVIT: Self = Self {
        size: Size::Shortest(256),
        signed: true,
        ..Self::VIDEOMAE
    };
    pub const PIX2STRUCT: Self = Self {
        size: Size::Area {
            most: 2048 * 16 * 16,
            of: 16,
        },
        standardises: true,
        ..Self::VIT
    };
    pub const KOSMOS: Self = Self {
        size: Size::Area {
            most: 4096 * 16 * 16,
            of: 16,
        },
        ..Self::PIX2STRUCT
    };
    pub const GEMMA4: Self = Self {
        size: Size::Area {
            most: 280 * 48 * 48,
            of: 48,
        },
        filter: Filter::Bicubic,
        mean: [0.0; 3],
        std: [1.0; 3],
        ..Self::VIT
    };
    pub const LLAMA4: Self = Self {
        size: Size::Exactly([336; 2]),
        ..Self::VIT
    };
    pub const QWEN: Self = Self::CLIP.in_multiples();
    pub const OWL: Self = Self {
        size: Size::Exactly([768; 2]),
        ..Self::BLIP
    };
}

impl Processor {
    /// What is subtracted from a byte times the factor, and that factor.
    pub fn shift(self) -> (f32, f64) {
        if self.signed {
            (1.0, 1.0 / 127.5)
        } else if self.standardises {
            (0.0, 1.0)
        } else {
            (0.0, 1.0 / 255.0)
        }
    }

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

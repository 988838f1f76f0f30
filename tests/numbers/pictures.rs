//! Pictures as prompts: bytes of files as Pillow reads them, and values and patches as the processors of transformers make them.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::Opening;
use attnscope_compute::ops::Cpu;
use attnscope_prompt::{
    Firsts, Picture, PicturePreprocessing, PictureSource, PromptForm, Request, Source,
};
use attnscope_run::{Options, Silent, input_of};
use safetensors::SafeTensors;
use testing::oracle_case::{cases, model_of, picture_of, reference_bytes, request_of};
use testing::root;

/// The values of a picture, back from its patches. // [channel, row, column]
fn values_of(picture: &Picture, n_channels: usize, [height, width]: [usize; 2]) -> Vec<f32> {
    let [rows, columns] = picture.grid();
    let whole_size = picture.size();
    let mut values = vec![f32::NAN; n_channels * whole_size[0] * whole_size[1]];
    for patch_idx in 0..rows * columns {
        let mut patch = Vec::new();
        picture.patch(patch_idx, &mut patch);
        let (top, left) = (patch_idx / columns * height, patch_idx % columns * width);
        for (idx, value) in patch.into_iter().enumerate() {
            let (channel, row) = (idx / (height * width), idx / width % height);
            let at = (channel * whole_size[0] + top + row) * whole_size[1] + left + idx % width;
            values[at] = value;
        }
    }
    values
}

#[test]
fn every_processor_makes_the_values_that_transformers_makes() {
    let mut n_pictures = 0;
    for case in cases() {
        let Some(path) = picture_of(&case) else {
            continue;
        };
        let model = model_of(&case).expect("opens");
        // A margin and pixels in two patches belong to the patches, and no processor makes them.
        let preprocessing = PicturePreprocessing {
            margin: 0,
            overlap: 0,
            ..model.spec.preprocessing().expect("sees")
        };
        let picture = Picture::read(&PictureSource::File(path), &preprocessing).expect("reads");
        let bytes = reference_bytes(&case);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let expected = reference.tensor("pixel_values").expect("the values");
        let numbers = expected.data().chunks(4);
        let numbers = numbers.map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")));
        let size = picture.size();
        assert_eq!(
            expected.shape(),
            [preprocessing.n_channels, size[0], size[1]]
        );
        let found = values_of(&picture, preprocessing.n_channels, preprocessing.patch);
        for (found, expected) in found.iter().zip(numbers) {
            // Pixels beyond the last whole patch are in no patch.
            let differs = !found.is_nan() && (found - expected).abs() > 2e-6;
            assert!(!differs, "{}: {found} {expected}", case.display());
        }
        n_pictures += 1;
    }
    assert!(n_pictures >= 12, "{n_pictures}");
}

/// A look that changes nothing: bytes as they are.
fn plain() -> PicturePreprocessing {
    PicturePreprocessing {
        n_channels: 3,
        resize: None,
        is_framed: false,
        resizes_values: false,
        crop: None,
        cuts_evenly: false,
        fill: None,
        has_blue_first: false,
        rescale: 1.0,
        mean: [0.0; 3],
        std: [1.0; 3],
        standardises: false,
        crops_margin: false,
        shrinks_by: None,
        patch: [1, 1],
        margin: 0,
        overlap: 0,
        n_moments: 1,
        takes: None,
        firsts: Firsts::default(),
    }
}

fn photo(name: &str) -> PathBuf {
    root().join("fixtures/formats/pictures").join(name)
}

fn read(path: &Path) -> Picture {
    Picture::read(&PictureSource::File(path.to_path_buf()), &plain()).expect("reads")
}

#[test]
fn files_are_read_as_pillow_reads_them() {
    // Chroma of half the size is widened otherwise by every reader.
    for (name, most) in [
        ("plain.jpg", 3),
        ("halved.jpg", 24),
        ("progressive.jpg", 3),
        ("grey.jpg", 1),
        ("turned.jpg", 3),
        ("grey.png", 0),
        ("palette.png", 0),
        ("clear.png", 0),
    ] {
        let found = read(&photo(name));
        let expected = read(&photo(&format!("{}.rgb.png", name.replace('.', "_"))));
        assert_eq!(found.size(), expected.size(), "{name}");
        let [rows, columns] = found.size();
        let mut worst = 0;
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |c| (row, c))) {
            let both = found
                .pixel(row, column)
                .into_iter()
                .zip(expected.pixel(row, column));
            worst = both.map(|(a, b)| a.abs_diff(b)).fold(worst, u8::max);
        }
        assert!(worst <= most, "{name}: {worst}");
    }
}

fn refused(case: &str, request: &Request) -> String {
    let model = model_of(&root().join("fixtures/oracle").join(case)).expect("opens");
    let no_text = PromptForm::Ids("no tokenizer".to_owned());
    let refused = attnscope_prompt::prepare(request, &no_text, model.spec.limits());
    refused.expect_err("is refused").to_string()
}

#[test]
fn prompts_of_the_wrong_kind_are_refused_with_words() {
    let picture = Request {
        source: Source::picture(photo("plain.jpg")),
        ..Request::text("")
    };
    for (case, request, part) in [
        ("vit", Request::text("a cat"), "--image"),
        ("vit", Request::ids(vec![0, 1]), "--image"),
        ("bert", picture.clone(), "reads text"),
        ("siglip_text_model", picture, "reads text"),
    ] {
        let said = refused(case, &request);
        assert!(said.contains(part), "{case}: {said}");
    }
    let broken = tempfile::Builder::new()
        .suffix(".png")
        .tempfile()
        .expect("a file");
    std::fs::write(broken.path(), b"\x89PNG\r\n\x1a\nnothing").expect("written");
    let request = Request {
        source: Source::picture(broken.path()),
        ..Request::text("")
    };
    assert!(refused("vit", &request).contains("PNG"));
}

#[test]
fn a_model_of_two_towers_opens_the_one_that_the_prompt_is_for() {
    let path = root().join("fixtures/oracle/clip_vision_model/model");
    let open = |sees: bool, set: &[(&str, &str)]| {
        let set = set
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let opening = Opening {
            sees,
            set: set.collect(),
            ..Opening::from(Some(path.clone()))
        };
        attnscope_families::read(opening.open().expect("opens")).expect("is understood")
    };
    assert_eq!(open(true, &[]).spec.family, "clip_vision_model");
    assert_eq!(
        open(true, &[("tower", "text")]).spec.family,
        "clip_text_model"
    );
    assert_eq!(
        open(false, &[("tower", "vision")]).spec.family,
        "clip_vision_model"
    );
    let text = open(false, &[]);
    assert_eq!(text.spec.family, "clip_text_model");
    let said = text.checkpoint.remarks();
    assert!(
        said.iter().any(|said| said.contains("tower=vision")),
        "{said:?}"
    );
}

#[test]
fn the_tower_that_sees_of_a_model_that_writes_is_read_where_it_is_asked_for() {
    let path = root().join("fixtures/oracle/qwen2_vl/model");
    let open = |set: &[(&str, &str)]| {
        let set = set
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let opening = Opening {
            set: set.collect(),
            ..Opening::from(Some(path.clone()))
        };
        attnscope_families::read(opening.open().expect("opens")).expect("is understood")
    };
    assert_eq!(open(&[]).spec.family, "qwen2");
    let tower = open(&[("tower", "vision")]);
    assert_eq!(tower.spec.family, "qwen2_vl_vision");
    assert!(tower.spec.stacks[0].embed.patches.is_some());
}

#[test]
fn another_order_of_patches_is_another_picture() {
    let case = root().join("fixtures/oracle/vit");
    let model = model_of(&case).expect("opens");
    let bytes = reference_bytes(&case);
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    let no_text = PromptForm::Ids("no tokenizer".to_owned());
    let request = request_of(&case, &reference);
    let prompt = attnscope_prompt::prepare(&request, &no_text, model.spec.limits()).expect("fits");
    assert_eq!(prompt.labels[..3], ["[CLS]", "r1 c1", "r1 c2"]);
    let hidden = |swap: bool| {
        let mut input = input_of(&prompt);
        if swap {
            input.sequence.tokens.swap(2, 7);
        }
        let options = Options {
            keep_bytes: None,
            predicts: true,
        };
        let ran = attnscope_run::run(&Cpu, &model, &input, options, &mut Silent, None, &|| false);
        let outcome = ran.expect("runs");
        let predictions = outcome.predictions.expect("labels");
        format!("{predictions:?}")
    };
    assert_eq!(hidden(false), hidden(false));
    assert_ne!(hidden(false), hidden(true));
}

//! Models that hear, against what transformers makes of a file of sound: its spectrogram, and what is written of it.

use attnscope_checkpoint::Checkpoint;
use attnscope_compute::ops::Cpu;
use attnscope_prompt::{Prompt, PromptForm, Request, Target};
use attnscope_run::generate;
use attnscope_spec::Model;
use safetensors::SafeTensors;
use testing::root;

const CASES: [&str; 2] = ["whisper", "whisper_b"];

/// Every so many frames of a spectrogram are kept in a reference: see `make_speech.py`.
const STEP: usize = 8;

struct Case {
    model: Model,
    reference: Vec<u8>,
    sound: String,
}

impl Case {
    fn open(name: &str) -> Self {
        let at = root().join("fixtures/oracle").join(name);
        let model = Checkpoint::open(&at.join("model")).and_then(attnscope_families::read);
        Self {
            model: model.expect("opens"),
            reference: std::fs::read(at.join("reference.safetensors")).expect("a reference"),
            sound: at.join("sound.wav").to_string_lossy().into_owned(),
        }
    }

    fn prompt(&self, target: Target) -> Prompt {
        let request = Request {
            target,
            ..Request::text(&self.sound)
        };
        let prompt_form = PromptForm::Ids("not asked for".to_owned());
        attnscope_prompt::prepare(&request, &prompt_form, self.model.spec.limits()).expect("fits")
    }

    fn floats(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let all = SafeTensors::deserialize(&self.reference).expect("a reference");
        let tensor = all.tensor(name).expect("a tensor");
        let float = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("4 bytes"));
        (
            tensor.shape().to_vec(),
            tensor.data().chunks(4).map(float).collect(),
        )
    }

    fn written(&self) -> Vec<u32> {
        let all = SafeTensors::deserialize(&self.reference).expect("a reference");
        let tensor = all.tensor("written").expect("a tensor");
        let id = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("8 bytes")) as u32;
        tensor.data().chunks(8).map(id).collect()
    }
}

#[test]
fn a_spectrogram_is_the_feature_extractor_s() {
    for name in CASES {
        let case = Case::open(name);
        let prompt = case.prompt(Target::Generate(0));
        let sound = prompt.given().sound.as_deref().expect("a sound");
        let (shape, expected) = case.floats("input_features"); // [mel, frame]
        assert_eq!(sound.n_mels, shape[0]);
        let mut furthest = 0.0f32;
        for (mel_idx, row) in expected.chunks(shape[1]).enumerate() {
            for (nth, expected) in row.iter().enumerate() {
                let found = sound.values[nth * STEP * sound.n_mels + mel_idx];
                furthest = furthest.max((found - expected).abs());
            }
        }
        assert!(furthest < 1e-4, "{name}: {furthest}");
    }
}

#[test]
fn what_is_written_of_a_sound_is_what_transformers_says() {
    for name in CASES {
        let case = Case::open(name);
        let expected = case.written();
        let mut prompt = case.prompt(Target::Generate(12));
        let label = |id: u32| id.to_string();
        generate(&Cpu, &case.model, &mut prompt, &label, &mut |_| {}, &|| {
            false
        })
        .expect("writes");
        assert_eq!(prompt.tokens, expected, "{name}");
    }
}

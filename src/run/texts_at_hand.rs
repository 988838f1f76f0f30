//! Texts on which readings are told apart where the prompts are too short for that: prompts in a file beside the checkpoint, or
//! else built-in texts of a kind that the tokenizer knows.

use attnscope_checkpoint::counted::counted;
use attnscope_forward::Input;
use attnscope_prompt::{PromptForm, PromptsBeside, Request, Tokenizer, built_in_texts, prepare};
use attnscope_spec::Model;

use super::budget::Budget;
use super::writing::input_of;

/// Number of positions that decide most readings (ours): prompts with as many are judged alone.
const ENOUGH: usize = 384;

/// How often a race of readings runs each position, about.
const TIMES: u64 = 10;

/// Added texts, and where they come from.
pub(super) struct TextsAtHand {
    pub inputs: Vec<Input>,
    /// As in “over 400 positions of the prompt and …”.
    pub words: String,
}

impl TextsAtHand {
    /// Texts beside these prompts; `None` if the prompts suffice, there are none, or the model is too large for more.
    pub fn of(model: &Model, prompts: &[Input], budget: Budget) -> Option<Self> {
        let n_given: usize = prompts.iter().map(|input| input.sequence.len()).sum();
        let of_token = model.spec.n_multiplications().max(1) as u64;
        let affordable = budget.multiplications() / (TIMES * of_token);
        let most = ENOUGH.saturating_sub(n_given).min(affordable as usize);
        if most == 0 {
            return None;
        }
        let form = Tokenizer::open(&model.checkpoint.tokenizer)
            .unwrap_or_else(|e| PromptForm::Ids(e.to_string()));
        let directory = model.checkpoint.config.path().parent()?.to_owned();
        // The command line tells of a damaged file.
        let beside = PromptsBeside::of(&directory, &Request::ids(Vec::new()));
        let beside = beside.ok().flatten();
        if let Some(beside) = beside {
            let requests = beside.requests.into_iter().map(|(_, request)| request);
            let inputs = fitting(model, &form, requests, prompts, most);
            let words = format!(
                "{} of {} beside the checkpoint",
                counted(inputs.len(), "prompt"),
                beside.path.file_name().unwrap_or_default().display()
            );
            if !inputs.is_empty() {
                return Some(Self { inputs, words });
            }
        }
        let inputs = fitting(model, &form, built_in_texts(), prompts, most);
        let words = counted(inputs.len(), "built-in text");
        (!inputs.is_empty()).then_some(Self { inputs, words })
    }
}

/// Inputs that the model can run and whose text its tokenizer knows, other than the prompts, with about `most` tokens.
fn fitting(
    model: &Model,
    form: &PromptForm,
    requests: impl Iterator<Item = Request>,
    prompts: &[Input],
    most: usize,
) -> Vec<Input> {
    let mut inputs: Vec<Input> = Vec::new();
    let mut n = 0;
    for request in requests {
        if n >= most {
            break;
        }
        let Ok(prompt) = prepare(&request, form, model.spec.limits()) else {
            continue;
        };
        if prompt.all_lost().much().is_some() || prompt.n_to_generate > 0 {
            continue;
        }
        let input = input_of(&prompt);
        let is_given = prompts
            .iter()
            .any(|given| given.sequence.tokens == input.sequence.tokens);
        if !is_given {
            n += input.sequence.len();
            inputs.push(input);
        }
    }
    inputs
}

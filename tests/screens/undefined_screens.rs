//! What is not defined on a text is a grey dash with its reason; what should be finite and is not stays as loud as it was.

use attnscope::bundles::named;
use attnscope_checkpoint::Opening;
use attnscope_checks::stats::{STATISTICS, Stat};
use attnscope_prompt::Request;
use attnscope_screen::{Depth, Panel};
use crossterm::event::KeyCode;
use testing::checkpoint_copy::{Copy, Stored};
use testing::judged::fixture;
use testing::screen::Screen;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn induction(text: &str, size: (u16, u16)) -> Screen {
    let opening = Opening {
        bundle: named("induction-demo"),
        ..Opening::default()
    };
    let mut screen = Screen::open(opening, Request::text(text), size, Depth::Truecolor);
    screen.app.shows_times = false;
    screen.app.statistic_idx = Stat::InductionMass.idx();
    screen
}

/// Cells in the colour of what is not finite.
fn n_loud(screen: &mut Screen) -> usize {
    let loud = screen.app.theme.heat(f32::NAN);
    let buffer = screen.frame();
    buffer
        .content()
        .iter()
        .filter(|cell| cell.bg == loud || cell.fg == loud)
        .count()
}

#[test]
fn a_text_in_which_no_token_repeats_leaves_a_dash_and_the_reason() {
    for size in SIZES {
        let mut screen = induction("the old king gave a red apple", size);
        assert_eq!(n_loud(&mut screen), 0, "{size:?}");
        let text = screen.text();
        assert!(text.contains("– no token repeats"), "{text}");
        // Eight heads and two layers; the definition below says NaN in its own words.
        assert!(text.matches('–').count() > 8, "{text}");
        assert!(!text.contains("   NaN"), "{text}");
        screen.go(Panel::Scores);
        assert_eq!(n_loud(&mut screen), 0);
        assert!(!screen.text().contains("NaN"), "{}", screen.text());
    }
    // With a repeated token there are numbers again.
    let mut screen = induction("the king gave the king a red apple", (120, 40));
    let text = screen.text();
    assert!(
        !text.contains("no token repeats") && !text.contains("   NaN"),
        "{text}"
    );
}

#[test]
fn rows_that_are_no_distributions_are_told_of_in_every_panel() {
    let mut screen = induction("the king gave the king a red apple", (120, 40));
    screen.app.statistic_idx = Stat::EntropyRelative.idx();
    screen.key(KeyCode::Char('w'));
    screen.typed("softmax_axis=queries");
    screen.key(KeyCode::Enter);
    assert!(
        screen.text().contains("– rows do not sum to 1"),
        "{}",
        screen.text()
    );
    for _ in 0..3 {
        for panel in Panel::ALL
            .into_iter()
            .filter(|panel| *panel != Panel::Story)
        {
            screen.go(panel);
            assert_eq!(n_loud(&mut screen), 0, "{panel:?}\n{}", screen.text());
        }
        screen.go(Panel::Overview);
        screen.typed("v");
    }
}

#[test]
fn every_statistic_without_a_value_on_a_healthy_model_has_a_reason() {
    let short = || Screen::open(None, Request::text("the"), (120, 40), Depth::None);
    let long = induction("the old king gave a red apple", (120, 40));
    let cross = Screen::open(
        Some(fixture("oracle/t5_v11/model")),
        Request::ids(vec![3, 5, 7, 1]),
        (120, 40),
        Depth::None,
    );
    for screen in [short(), long, cross] {
        let run = screen.app.runs.a.as_ref().expect("a run");
        for layer in run.layers.values().flatten() {
            for (idx, statistic) in STATISTICS
                .iter()
                .enumerate()
                .filter(|(_, s)| s.is_per_head())
            {
                for (head_idx, head) in layer.heads.iter().enumerate() {
                    let why = layer.why_undefined(idx, Some(head_idx));
                    let is_nan = head.stats.at(idx).is_nan();
                    assert_eq!(why.is_some(), is_nan, "{} {why:?}", statistic.id);
                }
                let is_nan = layer.stats.at(idx).is_nan();
                assert_eq!(
                    layer.why_undefined(idx, None).is_some(),
                    is_nan,
                    "{}",
                    statistic.id
                );
            }
        }
    }
}

#[test]
fn a_broken_model_has_no_excuse() {
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        let name = weights
            .keys()
            .find(|name| name.ends_with("h.1.attn.c_attn.weight"));
        let name = name.expect("a projection").clone();
        let mut values = weights[&name].values();
        values[0] = f32::NAN;
        let shape = weights[&name].shape.clone();
        weights.insert(name, Stored::f32(&shape, &values));
    });
    let ids = Request::ids(vec![1, 2, 3, 4, 5]);
    let mut screen = Screen::open(
        Some(copy.path().to_path_buf()),
        ids,
        (120, 40),
        Depth::Truecolor,
    );
    screen.app.statistic_idx = Stat::Entropy.idx();
    assert!(n_loud(&mut screen) > 0, "{}", screen.text());
    let run = screen.app.runs.a.as_ref().expect("a run");
    let layers = run.layers.values().flatten();
    for layer in layers.filter(|layer| layer.stats.of(Stat::Entropy).is_nan()) {
        for stat in [Stat::Entropy, Stat::InductionMass, Stat::MaxProbability] {
            assert_eq!(layer.why_undefined(stat.idx(), None), None);
        }
    }
}

#[test]
fn a_remark_on_how_a_checkpoint_was_read_leaves_the_frame_whole() {
    let copy = Copy::of("gpt2");
    copy.write("attnscope.toml", "[set]\nscale = \"inv_d\"\n");
    for size in SIZES {
        let ids = Request::ids(vec![1, 2, 3, 4, 5]);
        let mut screen = Screen::open(Some(copy.path().to_path_buf()), ids, size, Depth::None);
        screen.go(Panel::Checks);
        screen.key(KeyCode::End);
        let text = screen.text();
        assert!(text.contains("attnscope.toml"), "{text}");
        let frames = text.lines().filter(|line| line.starts_with(['└', '┌']));
        for line in frames.filter(|line| line.starts_with('└')) {
            assert!(line.chars().all(|c| "└─┘".contains(c)), "{line}\n{text}");
        }
        // The last line of the list is still reached.
        let n = text
            .lines()
            .filter(|line| line.contains("attnscope.toml"))
            .count();
        assert_eq!(n, 1, "{text}");
    }
}

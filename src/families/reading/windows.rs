//! Which layers have a sliding window, and how wide it is.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::Window;
use attnscope_compute::error::{Error, Result};

/// Which layers have a sliding window if no list says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowRule {
    Never,
    /// All if a width is stated; and the default width.
    Always(Option<usize>),
    /// All but every n-th; the key that states n, if any, and the default width.
    AllBut {
        every: usize,
        every_key: Option<&'static str>,
        width: usize,
    },
    /// The layers of a list; without a list, all if a width is stated; and the default width.
    ListedOrAlways(Option<usize>),
    /// All but the first of every n; and the default width.
    AllButFirst {
        every: usize,
        width: usize,
    },
    /// All but every n-th, unless the width is null; the key that states n, and the default width.
    AllButUnlessNull {
        every: usize,
        every_key: &'static str,
        width: usize,
    },
    /// Without a list, the layers whose entry in another list is not 0, or all but the first and every n-th; the key that says how
    /// many tokens a query sees beside itself, and the default width.
    Marked {
        list: &'static str,
        every: usize,
        beside_key: &'static str,
        width: usize,
    },
    /// The layers of a list; none without a list; and the default width.
    Listed(usize),
    /// The layers of a list that must be there; and the default width. If `has_mixers`, layers of other types do not attend, and
    /// what reads the mixers judges their names.
    MustList {
        width: usize,
        has_mixers: bool,
    },
    /// Unless the width is null: from the layer that the key names on; without the key, from the layer with this number on; and
    /// the default width.
    FromUnlessNull {
        first_key: &'static str,
        first: usize,
        width: usize,
    },
    /// If `use_sliding_window` is on: from the layer that the key names on; without the key, from the layer with this number on.
    From(&'static str, usize),
    /// If `use_sliding_window` is on: every second layer before this one.
    EvenLayersBefore(&'static str),
    /// If `use_sliding_window` is on: all.
    AllIfEnabled,
    /// If `use_sliding_window` is on: layers whose entry in this list is 0; without the list, every n-th.
    WhereZero(&'static str, usize),
}

/// Reads the window of every layer.
///
/// # Errors
/// When a width or a list is invalid.
pub fn layer_windows(
    reader: &mut Reader<'_>,
    n_layers: usize,
    rule: &WindowRule,
) -> Result<Vec<Option<Window>>> {
    let none = vec![None; n_layers];
    if *rule == WindowRule::Never {
        return Ok(none);
    }
    let default_width = match rule {
        WindowRule::Always(width) | WindowRule::ListedOrAlways(width) => *width,
        WindowRule::AllBut { width, .. }
        | WindowRule::AllButFirst { width, .. }
        | WindowRule::AllButUnlessNull { width, .. }
        | WindowRule::FromUnlessNull { width, .. }
        | WindowRule::Marked { width, .. }
        | WindowRule::MustList { width, .. }
        | WindowRule::Listed(width) => Some(*width),
        _ => None,
    };
    let width =
        reader.number_or_none("window", "sliding_window", default_width.map(|w| w as f64))?;
    let width = match rule {
        WindowRule::Marked { beside_key, .. } if reader.value(beside_key).is_some() => {
            let beside = reader.count_or("window_beside", beside_key, 0)?;
            reader.forget(&["window", "window_beside"]);
            reader.note("window", beside + 1, Origin::Key((*beside_key).to_owned()));
            Some(beside as f64 + 1.0)
        }
        _ => width,
    };
    let is_optional = default_width.is_none() && !matches!(rule, WindowRule::Always(_));
    // In the family that has both, a list of layers takes precedence.
    let has_list =
        matches!(rule, WindowRule::WhereZero(..)) && reader.value("layer_types").is_some();
    if is_optional && !reader.flag_or("uses_window", "use_sliding_window", false)? && !has_list {
        let types = reader.words_by_layer("layer_types", n_layers)?;
        if types.is_some_and(|types| types.iter().any(|kind| kind == "sliding_attention")) {
            let problem = "lists layers with a window, and use_sliding_window is false";
            return Err(Error::config(reader.path(), "layer_types", problem));
        }
        return Ok(none);
    }
    let types = reader.words_by_layer("layer_types", n_layers)?;
    if matches!(rule, WindowRule::MustList { .. }) && types.is_none() {
        let problem = "missing, expected sliding_attention or full_attention for each layer";
        return Err(Error::config(reader.path(), "layer_types", problem));
    }
    let has_mixers = matches!(
        rule,
        WindowRule::MustList {
            has_mixers: true,
            ..
        }
    );
    // If all layers of a family are alike, a list is there by accident, and transformers ignores it.
    let is_listed = !matches!(rule, WindowRule::Always(_));
    let slides_by_list = types
        .as_ref()
        .filter(|_| is_listed)
        .map(|types| types.iter().any(|kind| kind == "sliding_attention"));
    let Some(width) = width else {
        let must = matches!(
            rule,
            WindowRule::AllBut { .. } | WindowRule::AllButFirst { .. }
        );
        if slides_by_list.unwrap_or(must) {
            let problem = "missing, expected a whole number from 1: some layers have a window";
            return Err(Error::config(reader.path(), "sliding_window", problem));
        }
        return Ok(none);
    };
    if width < 1.0 || width.fract() != 0.0 {
        if slides_by_list == Some(false) {
            return Ok(none);
        }
        let problem = format!("expected a whole number from 1, found {width}");
        return Err(Error::config(reader.path(), "sliding_window", problem));
    }
    let window = Some(Window::Back(width as usize));
    if let Some(types) = types.filter(|_| is_listed) {
        let of_type = |kind: &String| match kind.as_str() {
            "sliding_attention" => Ok(window),
            "full_attention" => Ok(None),
            _ if has_mixers => Ok(None),
            other => {
                let problem =
                    format!("expected full_attention or sliding_attention, found {other:?}");
                Err(Error::config(reader.path(), "layer_types", problem))
            }
        };
        let windows: Result<Vec<_>> = types.iter().map(of_type).collect();
        let n_windowed = types.iter().filter(|t| *t == "sliding_attention").count();
        let text = format!("{n_windowed} of {n_layers}");
        reader.note(
            "windowed_layers",
            text,
            Origin::Key("layer_types".to_owned()),
        );
        return windows;
    }
    let slides: Box<dyn Fn(usize) -> bool> = match *rule {
        WindowRule::Never | WindowRule::Listed(_) | WindowRule::MustList { .. } => {
            Box::new(|_| false)
        }
        WindowRule::Always(_) | WindowRule::ListedOrAlways(_) | WindowRule::AllIfEnabled => {
            Box::new(|_| true)
        }
        WindowRule::AllButFirst { every, .. } => Box::new(move |i| i % every != 0),
        WindowRule::AllButUnlessNull {
            every, every_key, ..
        } => {
            let default = Origin::Default(every_key.to_owned());
            let every = reader.size_or("full_every", every_key, every, default)?;
            Box::new(move |i| (i + 1) % every != 0)
        }
        WindowRule::AllBut {
            every, every_key, ..
        } => {
            let every = match every_key {
                None => every,
                Some(key) => {
                    reader.size_or("full_every", key, every, Origin::Default(key.to_owned()))?
                }
            };
            Box::new(move |i| (i + 1) % every != 0)
        }
        WindowRule::From(key, first)
        | WindowRule::FromUnlessNull {
            first_key: key,
            first,
            ..
        } => {
            let first = reader.count_or("window_from_layer", key, first)?;
            Box::new(move |i| i >= first)
        }
        WindowRule::EvenLayersBefore(key) => {
            let end = reader.count_or("window_before_layer", key, n_layers)?;
            Box::new(move |i| i % 2 == 0 && i < end)
        }
        WindowRule::Marked { list, every, .. } => match reader.numbers(list)? {
            Some(list) => Box::new(move |i| list.get(i).is_some_and(|entry| *entry != 0)),
            None => Box::new(move |i| i != 0 && (i + 1) % every != 0),
        },
        WindowRule::WhereZero(key, every) => match reader.numbers(key)? {
            Some(list) => Box::new(move |i| list.get(i) == Some(&0)),
            None => {
                let key = "no_rope_layer_interval";
                let default = Origin::Default(key.to_owned());
                let every = reader.size_or("no_rope_every", key, every, default)?;
                Box::new(move |i| (i + 1) % every == 0)
            }
        },
    };
    let windows: Vec<Option<Window>> = (0..n_layers)
        .map(|i| window.filter(|_| slides(i)))
        .collect();
    let n_windowed = windows.iter().flatten().count();
    let text = format!("{n_windowed} of {n_layers}");
    reader.note("windowed_layers", text, Origin::Family);
    Ok(windows)
}

/// Reads two-sided windows, half of the width on either side: one width for all layers, or one per layer.
///
/// # Errors
/// When the number of widths is not the number of layers, or a width is not even and positive.
pub fn windows_around(
    reader: &mut Reader<'_>,
    key: &str,
    n_layers: usize,
) -> Result<Vec<Option<Window>>> {
    let widths = match reader.value(key) {
        Some(value) if value.is_array() => reader.numbers(key)?.unwrap_or_default(),
        Some(value) => vec![value.as_u64().unwrap_or(0); n_layers],
        None => vec![512; n_layers],
    };
    let is_right = |width: &u64| *width > 0 && width.is_multiple_of(2);
    if widths.len() != n_layers || !widths.iter().all(is_right) {
        let problem = format!("expected {n_layers} even numbers above 0, or one for all layers");
        return Err(Error::config(reader.path(), key, problem));
    }
    let words: Vec<String> = widths.iter().map(u64::to_string).collect();
    reader.note("windows", words.join(", "), Origin::Key(key.to_owned()));
    let around = |width: u64| Some(Window::Around(width as usize / 2));
    Ok(widths.into_iter().map(around).collect())
}

//! Tables of embeddings, one row per word: NumPy's `.npz` and `.npy`, safetensors, or word2vec text. Rows are read on demand.

mod dictionary;
mod numpy;
mod text;

use std::path::{Path, PathBuf};

pub use dictionary::Dictionary;

use self::text::Lines;
use super::data_file::DataFile;
use super::safetensors;
use super::tensors::Tensors;
use attnscope_compute::error::{Error, Result};

/// Name of the array or tensor to read when there are several.
const NAME: &str = "embeddings";
/// Magic bytes of a NumPy archive and of a NumPy array.
const ZIP: &[u8] = b"PK";
const NPY: &[u8] = b"\x93NUMPY";

/// An open table: its sizes are known, but no row has been read.
#[derive(Debug)]
pub struct Embeddings {
    pub path: PathBuf,
    pub n_rows: usize,
    pub width: usize,
    /// Element type; `text` for numbers written as text.
    pub stored_as: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// An archive, and the name of its member.
    Npz(DataFile, String),
    Npy(DataFile),
    Tensor(Tensors, String),
    Text(Lines),
}

impl Embeddings {
    /// # Errors
    /// When the file cannot be read, is none of the formats, or holds no table.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of_file(DataFile::open(path)?)
    }

    fn of_file(file: DataFile) -> Result<Self> {
        let path = file.path().to_path_buf();
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        match ending.to_lowercase().as_str() {
            "npz" => return numpy::open_archive(file),
            "npy" => return numpy::open_array(file),
            "safetensors" => return of_tensors(&path),
            _ => {}
        }
        let begin = file.read(0..NPY.len())?;
        if begin.starts_with(ZIP) {
            return numpy::open_archive(file);
        }
        if begin.starts_with(NPY) {
            return numpy::open_array(file);
        }
        let lines = Lines::read(file)?;
        Ok(Self {
            path,
            n_rows: lines.n_rows(),
            width: lines.width,
            stored_as: "text".to_owned(),
            source: Source::Text(lines),
        })
    }

    /// Name of the table's file, for display.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Reads some rows, in the order requested. // [wanted, width]
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn rows(&self, wanted: &[usize]) -> Result<Vec<f32>> {
        match &self.source {
            Source::Npz(file, member) => numpy::rows_of_archive(self, file, member, wanted),
            Source::Npy(file) => numpy::rows_of_array(self, file, wanted),
            Source::Tensor(tensors, name) => {
                let missing = || Error::tensor(&self.path, name, "missing");
                let view = tensors.get(name).ok_or_else(missing)?;
                let rows = wanted.iter().map(|row| view.widen_rows(*row..*row + 1));
                let rows: Vec<_> = rows.collect::<Result<_>>()?;
                Ok(rows.concat())
            }
            Source::Text(lines) => {
                let rows = wanted.iter().map(|row| lines.row(*row));
                let rows: Vec<Vec<f32>> = rows.collect::<Result<_>>()?;
                Ok(rows.concat())
            }
        }
    }
}

/// A table of embeddings and its words.
#[derive(Debug)]
pub struct Table {
    pub embeddings: Embeddings,
    pub dictionary: Dictionary,
}

impl Table {
    /// Opens both files; `side` names the table in messages.
    ///
    /// # Errors
    /// When a file cannot be read, words are missing or repeated, or a word's row is outside the table.
    pub fn open(path: &Path, dictionary: Option<&Path>, side: &str) -> Result<Self> {
        let embeddings = Embeddings::open(path)?;
        let own = match &embeddings.source {
            Source::Text(lines) => Some(lines.dictionary().clone()),
            _ => None,
        };
        let dictionary = match (dictionary, own) {
            (Some(path), None) => Dictionary::open(path)?,
            (None, Some(own)) => own,
            (None, None) => {
                let problem = format!(
                    "holds no words: expected --{side}-vocab with a dictionary word → row, as JSON or pickle"
                );
                return Err(Error::file(path, problem));
            }
            (Some(_), Some(_)) => {
                let problem =
                    format!("has its words beside its rows: --{side}-vocab is one too many");
                return Err(Error::file(path, problem));
            }
        };
        Self::of(embeddings, dictionary)
    }

    /// Opens a table whose two files are compiled into the program; each is given with its name for messages.
    ///
    /// # Errors
    /// As for [`Table::open`].
    pub fn compiled_in(
        embeddings: (&str, &'static [u8]),
        words: (&str, &'static [u8]),
    ) -> Result<Self> {
        let [embeddings, words] =
            [embeddings, words].map(|(path, bytes)| DataFile::compiled_in(path, bytes));
        Self::of(
            Embeddings::of_file(embeddings)?,
            Dictionary::of_file(&words)?,
        )
    }

    fn of(embeddings: Embeddings, dictionary: Dictionary) -> Result<Self> {
        if let Some((word, row)) = dictionary.beyond(embeddings.n_rows) {
            let problem = format!(
                "{word:?} has row {row}, {} has rows 0..{}",
                embeddings.path.display(),
                embeddings.n_rows - 1
            );
            return Err(Error::file(dictionary.path(), problem));
        }
        Ok(Self {
            embeddings,
            dictionary,
        })
    }
}

/// Checks that a shape is that of a table, and returns its two sizes.
///
/// # Errors
/// One clause, when there are not two, or one is empty.
fn table_of(shape: &[usize]) -> std::result::Result<(usize, usize), String> {
    match *shape {
        [n_rows, width] if n_rows > 0 && width > 0 => Ok((n_rows, width)),
        _ => Err(format!("expected [word, width], found shape {shape:?}")),
    }
}

/// Chooses the array called [`NAME`], or the only one.
///
/// # Errors
/// One clause that lists the arrays.
fn chosen(names: &[String], what: &str) -> std::result::Result<String, String> {
    match names {
        _ if names.iter().any(|name| name == NAME) => Ok(NAME.to_owned()),
        [only] => Ok(only.clone()),
        [] => Err(format!("expected {what} {NAME:?}, found none")),
        _ => Err(format!(
            "expected {what} {NAME:?} or one alone, found {}",
            listed(names)
        )),
    }
}

/// Lists names for a message, in at most one line.
fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    let mut said: Vec<String> = names.iter().take(MOST).map(|n| format!("{n:?}")).collect();
    if names.len() > MOST {
        said.push(format!("{} more", names.len() - MOST));
    }
    said.join(", ")
}

fn of_tensors(path: &Path) -> Result<Embeddings> {
    let tensors = safetensors::open_file(path)?;
    let is_table = |name: &str| {
        let info = tensors.info(name);
        info.is_some_and(|info| info.dtype.is_float() && info.shape.len() == 2)
    };
    let all = tensors.iter().map(|(name, _)| name);
    let names: Vec<String> = all
        .filter(|name| *name == NAME || is_table(name))
        .map(str::to_owned)
        .collect();
    let name = chosen(&names, "a matrix of floats called").map_err(|e| Error::file(path, e))?;
    let refused = |problem: String| Error::tensor(path, &name, problem);
    let info = tensors
        .info(&name)
        .ok_or_else(|| refused("missing".to_owned()))?;
    if !info.dtype.is_float() {
        return Err(refused(format!(
            "expected floating point, found {}",
            info.dtype
        )));
    }
    let (n_rows, width) = table_of(&info.shape).map_err(refused)?;
    Ok(Embeddings {
        path: path.to_path_buf(),
        n_rows,
        width,
        stored_as: info.dtype.to_string(),
        source: Source::Tensor(tensors, name),
    })
}

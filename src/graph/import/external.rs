//! Storage of a model: its file, and the files beside it that hold external tensors.
//!
//! Small files and tensors are read: a copy is cheaper than a mapping. Of large ones the tensors are parts of a mapped file,
//! which take no memory until they are read, and whose pages can leave it again (`Bytes::release`).
//!
//! Invariant: no file outside of the model's folder is read, all links followed.

use crate::graph::proto::TensorProto;
use crate::graph::synthetic::Recipe;
use crate::runtime::mapped::{FileState, MappedFile};
use crate::runtime::{Bytes, Error, Result};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

/// Files and tensors of files from this size on are mapped, in bytes.
pub const LEAST_MAPPED: usize = 1 << 20;
/// Tensors of the message from this size on stay in it, in bytes.
const LEAST_SHARED: usize = 1 << 12;

/// The folder of a model.
pub(super) struct Folder {
    path: PathBuf,
    /// Folders whose files belong to the model.
    roots: Vec<PathBuf>,
    /// The model's file.
    own: Option<MappedFile>,
    /// Files with external tensors, without links in their paths.
    files: Mutex<HashMap<PathBuf, MappedFile>>,
    /// The files that were opened, as they were then.
    opened: Mutex<HashMap<PathBuf, FileState>>,
}

impl Folder {
    pub fn new(path: &Path) -> Folder {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let roots = path.canonicalize().into_iter().collect();
        Folder { path: path.to_path_buf(), roots, own: None, files: Mutex::default(), opened: Mutex::default() }
    }

    /// The folder of a model file. Where that is a link, as in a cache of downloads, the data may lie beside what it
    /// leads to.
    pub fn of_file(file: &Path) -> Folder {
        let mut folder = Folder::new(file.parent().unwrap_or(Path::new("")));
        folder.roots.extend(file.canonicalize().ok().and_then(|f| f.parent().map(Path::to_path_buf)));
        folder
    }

    /// The bytes of the model's own file.
    pub fn open(&mut self, path: &Path) -> std::io::Result<prost::bytes::Bytes> {
        let mut file = self.open_file(&path.canonicalize().unwrap_or_else(|_| path.to_path_buf()))?;
        if file.metadata()?.len() < LEAST_MAPPED as u64 {
            let mut bytes = vec![];
            file.read_to_end(&mut bytes)?;
            return Ok(bytes.into());
        }
        let mapped = MappedFile::new(&file)?;
        self.own = Some(mapped.clone());
        Ok(prost::bytes::Bytes::from_owner(mapped))
    }

    /// Lets what is mapped leave memory.
    pub fn release(&self) {
        let files = self.files.lock().unwrap_or_else(|e| e.into_inner());
        self.own.iter().chain(files.values()).for_each(|file| file.release(0..file.as_ref().len()));
    }

    /// Opens a file by its path without links, which is right in other working folders too.
    fn open_file(&self, path: &Path) -> std::io::Result<File> {
        let file = File::open(path)?;
        let state = FileState::of(&file.metadata()?);
        self.opened.lock().unwrap_or_else(|e| e.into_inner()).entry(path.to_path_buf()).or_insert(state);
        Ok(file)
    }

    /// False where a file has changed since it was first opened, or another one has its name.
    pub fn is_unchanged(&self) -> bool {
        let now = |path| std::fs::metadata(path).map(|metadata| FileState::of(&metadata));
        let opened = self.opened.lock().unwrap_or_else(|e| e.into_inner());
        opened.iter().all(|(path, state)| now(path).is_ok_and(|now| now == *state))
    }

    /// A part of the model's message.
    pub fn own(&self, part: prost::bytes::Bytes) -> Bytes {
        if part.len() < LEAST_SHARED {
            return Bytes::from(&part[..]);
        }
        let mapped = self.own.as_ref().and_then(|file| {
            let offset = file.position(&part)?;
            Bytes::mapped(file, offset..offset + part.len())
        });
        mapped.unwrap_or_else(|| Bytes::shared(part))
    }

    /// The `bytes` bytes of a tensor that is stored outside of the message. Synthetic ones are made when they are first read.
    pub fn read(&self, proto: &TensorProto, bytes: usize) -> Result<Bytes> {
        let entry = |key: &str| proto.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let location =
            entry("location").ok_or_else(|| Error::Invalid("it is external but names no location".into()))?;
        if let Some(recipe) = recipe(proto)? {
            if proto.data_type != 1 {
                return Err(Error::Unsupported("synthetic weights of another type than f32".into()));
            }
            let make = move || recipe.fill(bytes / 4).into_iter().flat_map(f32::to_le_bytes).collect();
            return Ok(Bytes::late(bytes, make));
        }
        let number = |key: &str| -> Result<Option<u64>> {
            let wrong = |v| Error::Invalid(format!("its external {key} `{v}` is not a number"));
            entry(key).map(|v| v.parse().map_err(|_| wrong(v))).transpose()
        };
        let offset = number("offset")?.unwrap_or(0);
        if let Some(length) = number("length")?
            && length != bytes as u64
        {
            return Err(Error::Invalid(format!("it needs {bytes} bytes, but its external length is {length}")));
        }
        self.read_at(location, offset, bytes)
    }

    fn read_at(&self, location: &str, offset: u64, bytes: usize) -> Result<Bytes> {
        let fail = |reason: String| Error::Io(format!("external file `{location}`: {reason}"));
        let io = |e: std::io::Error| fail(e.to_string());
        let path = self.path.join(location);
        let inside = Path::new(location).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let real = if inside { path.canonicalize().map_err(io)? } else { path };
        if !inside || !self.roots.iter().any(|root| real.starts_with(root)) {
            return Err(Error::Invalid(format!("external file `{location}` lies outside of the model's folder")));
        }
        if !real.metadata().is_ok_and(|m| m.is_file()) {
            return Err(fail("it is not a regular file".into()));
        }
        let past = |size| fail(format!("{bytes} bytes at offset {offset} are past its end ({size} bytes)"));
        if bytes >= LEAST_MAPPED {
            let mut files = self.files.lock().unwrap_or_else(|e| e.into_inner());
            let file = match files.get(&real) {
                Some(file) => file.clone(),
                None => MappedFile::new(&self.open_file(&real).map_err(io)?).map_err(io)?,
            };
            files.entry(real).or_insert_with(|| file.clone());
            let size = file.as_ref().len();
            let start = usize::try_from(offset).ok();
            let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
            return range.and_then(|range| Bytes::mapped(&file, range)).ok_or_else(|| past(size as u64));
        }
        let mut file = self.open_file(&real).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        if offset.checked_add(bytes as u64).is_none_or(|end| end > size) {
            return Err(past(size));
        }
        let mut data = Bytes::zeros(bytes);
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut data)).map_err(io)?;
        Ok(data)
    }
}

/// The recipe of a synthetic tensor.
///
/// # Errors
/// `Invalid` where it is incomplete.
pub(super) fn recipe(proto: &TensorProto) -> Result<Option<Recipe>> {
    Recipe::parse(proto.external_data.iter().map(|e| (e.key.as_str(), e.value.as_str())))
}

#[cfg(test)]
#[path = "external_tests.rs"]
mod tests;

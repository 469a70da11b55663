//! `demo`: reads the picture of a line of text.

use super::model_arguments::choice;
use super::ocr;
use super::progress::Progress;
use std::io::BufReader;
use std::path::PathBuf;
use tilewright::internal::runtime::file::open;
use tilewright::{Error, Model, Options, Precision, Result};

#[derive(clap::Args)]
pub struct Arguments {
    /// A picture of one line of text, PNG or JPEG
    #[arg(default_value = "datasets/pictures/line.png")]
    picture: PathBuf,
    /// The recogniser
    #[arg(long, default_value = "target/models/ppocr_v4_rec.onnx")]
    model: PathBuf,
    /// Type of the operands of products and convolutions, whose sums stay in f32
    #[arg(long, value_name = "P", default_value = "f32", value_parser = choice::<Precision>(Precision::NAMES))]
    precision: Precision,
}

impl Arguments {
    pub fn run(self, progress: &Progress) -> Result<String> {
        let file = self.picture.display();
        let picture = image::ImageReader::new(BufReader::new(open(&self.picture)?))
            .with_guessed_format()
            .map_err(|e| Error::Io(format!("cannot read {file}: {e}")))?
            .decode()
            .map_err(|e| Error::Invalid(format!("cannot read the picture {file}: {e}")))?;
        if !self.model.exists() {
            return Err(Error::Io(format!(
                "{} is not there: `make demo` fetches it, and so does `python3 datasets/fetch.py ppocr_v4_rec`",
                self.model.display()
            )));
        }
        progress.stage("loading the recogniser");
        let model = Model::load(&self.model)?;
        let metadata = model.metadata();
        let characters = metadata
            .get("character")
            .ok_or_else(|| Error::Invalid(format!("{} carries no character list", self.model.display())))?;
        let [input] = model.inputs() else {
            return Err(Error::Invalid("a text recogniser has one input".into()));
        };
        let tensor = ocr::preprocess(&picture)?;
        progress.stage(format!("compiling the recogniser for {} pixels of width", tensor.shape[3]));
        let compiled = model.compile(&Options { precision: self.precision, ..Options::default() })?;
        let inputs = [(input.name.as_str(), &tensor)];
        let outputs = compiled.run(&inputs)?;
        let output = outputs.first().ok_or_else(|| Error::Invalid("the recogniser has no output".into()))?;
        let (text, sure) = ocr::decode(output, characters)?;
        let report = compiled.report(&inputs)?;
        Ok(format!("{report}\n{file} says, with {:.1} % confidence:\n{text}\n", sure * 100.0))
    }
}

//! Text recognition around the network: a picture to its input, its output to text.
//!
//! As PaddleOCR does it: height 48, width in proportion and at least 320, channels blue, green, red, values (x/255 -
//! 1/2) / (1/2), zeros to the right; then connectionist temporal classification read greedily (Graves et al., 2006):
//! the best class of each step, repetitions merged, blanks dropped.

use image::imageops::FilterType;
use image::{DynamicImage, GenericImageView};
use tilewright::{Error, Result, Tensor};

const HEIGHT: u32 = 48;
const LEAST_WIDTH: u32 = 320;
/// Longest line of text, in multiples of its height.
const LONGEST: u32 = 100;

/// The network's input for a picture: 1×3×48×width.
pub fn preprocess(picture: &DynamicImage) -> Result<Tensor> {
    let (width, height) = picture.dimensions();
    if width == 0 || height == 0 || width / height > LONGEST {
        return Err(Error::Invalid(format!("a picture of {width}×{height} pixels is not a line of text")));
    }
    let scaled = (HEIGHT * width).div_ceil(height).max(1);
    let padded = scaled.max(LEAST_WIDTH);
    let pixels = picture.to_rgb8();
    let pixels = image::imageops::resize(&pixels, scaled, HEIGHT, FilterType::Triangle);
    let mut values = vec![0f32; (3 * HEIGHT * padded) as usize];
    for (x, y, pixel) in pixels.enumerate_pixels() {
        for (channel, &value) in pixel.0.iter().rev().enumerate() {
            let index = (channel as u32 * HEIGHT + y) * padded + x;
            values[index as usize] = f32::from(value) / 127.5 - 1.0;
        }
    }
    Ok(Tensor::new(&[1, 3, i64::from(HEIGHT), i64::from(padded)], &values))
}

/// Decodes an output of shape 1×steps×classes to a text and its average confidence.
/// `characters` is the list in the model's metadata, a character a line, without the blank in front and the space behind.
pub fn decode(output: &Tensor, characters: &str) -> Result<(String, f32)> {
    let alphabet: Vec<&str> = characters.lines().collect();
    let classes = alphabet.len() + 2;
    let [1, _, last] = output.shape[..] else {
        return Err(Error::Invalid(format!("a text recogniser gives 1×steps×classes, not {:?}", output.shape)));
    };
    if last != classes as i64 || output.dtype != tilewright::DType::F32 {
        return Err(Error::Invalid(format!("the model gives {last} classes, but its character list makes {classes}")));
    }
    let (mut text, mut sum, mut count, mut previous) = (String::new(), 0.0, 0, 0);
    for step in output.to_vec::<f32>().chunks_exact(classes) {
        let (class, sure) = step.iter().copied().enumerate().fold((0, f32::MIN), |a, b| if b.1 > a.1 { b } else { a });
        if class != 0 && class != previous {
            text.push_str(alphabet.get(class - 1).unwrap_or(&" "));
            sum += sure;
            count += 1;
        }
        previous = class;
    }
    Ok((text.trim().to_string(), if count == 0 { 0.0 } else { sum / count as f32 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_becomes_blue_green_red_with_zeros_to_the_right() {
        let picture = image::RgbImage::from_pixel(96, 48, image::Rgb([255, 0, 51]));
        let tensor = preprocess(&DynamicImage::ImageRgb8(picture)).unwrap();
        assert_eq!(tensor.shape, [1, 3, 48, 320]);
        let values = tensor.to_vec::<f32>();
        let at = |channel: usize, x: usize| values[channel * 48 * 320 + x];
        assert_eq!([at(0, 95), at(1, 95), at(2, 95), at(0, 96)], [-0.6, -1.0, 1.0, 0.0]);
        assert!(preprocess(&DynamicImage::new_rgb8(10_000, 3)).is_err());
    }

    #[test]
    fn repetitions_merge_and_blanks_vanish() {
        // classes: blank, a, b, space
        let steps = [1, 1, 0, 1, 2, 3, 2, 0];
        let values: Vec<f32> =
            steps.iter().flat_map(|&s| (0..4).map(move |c| if c == s { 0.5 } else { 0.1 })).collect();
        let output = Tensor::new(&[1, 8, 4], &values);
        assert_eq!(decode(&output, "a\nb\n").unwrap(), ("aab b".to_string(), 0.5));
        assert!(decode(&output, "a\n").is_err());
    }
}

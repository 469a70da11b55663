//! The vector instructions of x86 that are emitted, one line each: AVX, AVX2 and FMA by VEX, AVX-512 by EVEX.
//!
//! VEX and EVEX forms of an instruction share map, prefix and opcode; only the W bit may differ. A test encodes each row
//! in all its forms and has iced-x86 decode it back to the name.

use crate::codegen::instruction::X86Encoding;

/// The prefixes with which an instruction can be encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forms {
    Vex,
    Evex,
    Both,
}

/// One opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// Mnemonic in VEX form.
    pub name: &'static str,
    pub forms: Forms,
    /// 1: 0F, 2: 0F38, 3: 0F3A.
    pub map: u8,
    /// 0: none, 1: 66, 2: F3, 3: F2.
    pub prefix: u8,
    pub opcode: u8,
    pub vex_w: bool,
    pub evex_w: bool,
    /// Bytes that are accessed at one address, the unit of EVEX's short displacements; negative: a shift of the width.
    unit: i8,
}

impl Op {
    /// The opcode of a declared instruction by EVEX that accesses so many bytes at an address.
    pub fn of_row(x: &X86Encoding, bytes: usize) -> Op {
        let prefix = [0, 0x66, 0xf3, 0xf2].iter().position(|&p| p == x.prefix).unwrap_or(0) as u8;
        Op {
            name: "",
            forms: Forms::Evex,
            map: x.map,
            prefix,
            opcode: x.opcode,
            vex_w: false,
            evex_w: x.w,
            unit: bytes as i8,
        }
    }

    /// Bytes that are accessed at one address when the instruction works on `width` bytes.
    pub fn unit(&self, width: usize) -> i32 {
        match self.unit {
            shift if shift <= 0 => (width >> -shift) as i32,
            bytes => i32::from(bytes),
        }
    }
}

const FULL: i8 = 0;
const HALF: i8 = -1;
const QUARTER: i8 = -2;
const EIGHTH: i8 = -3;

macro_rules! ops {
    ($($id:ident $name:literal $forms:ident $map:ident $prefix:ident $opcode:literal $vw:literal $ew:literal $unit:tt)*) => {
        $(pub const $id: Op = Op {
            name: $name, forms: Forms::$forms, map: $map, prefix: $prefix, opcode: $opcode,
            vex_w: $vw != 0, evex_w: $ew != 0, unit: $unit,
        };)*
        /// Every row.
        #[cfg(test)]
        pub const ALL: &[Op] = &[$($id),*];
    };
}

const M0F: u8 = 1;
const M38: u8 = 2;
const M3A: u8 = 3;
const NP: u8 = 0;
const P66: u8 = 1;
const PF3: u8 = 2;
const PF2: u8 = 3;

/// An instruction on tile registers: VEX, 0F38, W0.
const fn tile(name: &'static str, prefix: u8, opcode: u8) -> Op {
    Op { name, forms: Forms::Vex, map: M38, prefix, opcode, vex_w: false, evex_w: false, unit: 1 }
}

pub const TILE_CONFIGURE: Op = tile("ldtilecfg", NP, 0x49);
pub const TILE_ZERO: Op = tile("tilezero", PF2, 0x49);
pub const TILE_LOAD: Op = tile("tileloadd", PF2, 0x4b);
pub const TILE_LOAD_ONCE: Op = tile("tileloaddt1", P66, 0x4b);
pub const TILE_STORE: Op = tile("tilestored", PF3, 0x4b);

#[rustfmt::skip]
ops! {
    //                name             forms map prefix opcode, W of VEX and of EVEX, bytes at one address
    LOAD_PS           "vmovups"        Both M0F NP  0x10 0 0 FULL
    STORE_PS          "vmovups"        Both M0F NP  0x11 0 0 FULL
    LOAD_PD           "vmovupd"        Both M0F P66 0x10 0 1 FULL
    STORE_PD          "vmovupd"        Both M0F P66 0x11 0 1 FULL
    LOAD_B            "vmovdqu8"       Evex M0F PF2 0x6f 0 0 FULL
    STORE_B           "vmovdqu8"       Evex M0F PF2 0x7f 0 0 FULL
    LOAD_W            "vmovdqu16"      Evex M0F PF2 0x6f 0 1 FULL
    STORE_W           "vmovdqu16"      Evex M0F PF2 0x7f 0 1 FULL
    LOAD_SS           "vmovss"         Both M0F PF3 0x10 0 0 4
    STORE_SS          "vmovss"         Both M0F PF3 0x11 0 0 4
    LOAD_SD           "vmovsd"         Both M0F PF2 0x10 0 1 8
    STORE_SD          "vmovsd"         Both M0F PF2 0x11 0 1 8
    MOVE              "vmovaps"        Both M0F NP  0x28 0 0 FULL
    FROM_GPR32        "vmovd"          Both M0F P66 0x6e 0 0 4
    FROM_GPR64        "vmovq"          Both M0F P66 0x6e 1 1 8
    STORE_D           "vmovd"          Both M0F P66 0x7e 0 0 4
    TO_GPR64          "vmovq"          Both M0F P66 0x7e 1 1 8
    MASK_LOAD_PS      "vmaskmovps"     Vex  M38 P66 0x2c 0 0 FULL
    MASK_LOAD_PD      "vmaskmovpd"     Vex  M38 P66 0x2d 0 0 FULL
    MASK_STORE_PS     "vmaskmovps"     Vex  M38 P66 0x2e 0 0 FULL
    MASK_STORE_PD     "vmaskmovpd"     Vex  M38 P66 0x2f 0 0 FULL
    BROADCAST_SS      "vbroadcastss"   Both M38 P66 0x18 0 0 4
    BROADCAST_B       "vpbroadcastb"   Both M38 P66 0x78 0 0 1
    BROADCAST_W       "vpbroadcastw"   Both M38 P66 0x79 0 0 2
    BROADCAST_D       "vpbroadcastd"   Both M38 P66 0x58 0 0 4
    BROADCAST_Q       "vpbroadcastq"   Both M38 P66 0x59 0 1 8
    BROADCAST_128     "vbroadcasti128" Both M38 P66 0x5a 0 0 16
    SPLAT_B           "vpbroadcastb"   Evex M38 P66 0x7a 0 0 FULL
    SPLAT_W           "vpbroadcastw"   Evex M38 P66 0x7b 0 0 FULL
    SPLAT_D           "vpbroadcastd"   Evex M38 P66 0x7c 0 0 FULL
    SPLAT_Q           "vpbroadcastq"   Evex M38 P66 0x7c 0 1 FULL
    GATHER_DPS        "vgatherdps"     Both M38 P66 0x92 0 0 4
    GATHER_DPD        "vgatherdpd"     Both M38 P66 0x92 1 1 8
    GATHER_QPS        "vgatherqps"     Both M38 P66 0x93 0 0 4
    GATHER_QPD        "vgatherqpd"     Both M38 P66 0x93 1 1 8
    SCATTER_DPS       "vscatterdps"    Evex M38 P66 0xa2 0 0 4
    SCATTER_DPD       "vscatterdpd"    Evex M38 P66 0xa2 0 1 8
    // shuffles, insertions, extractions
    EXTRACT_128       "vextractf128"   Both M3A P66 0x19 0 0 16
    INSERT_128        "vinsertf128"    Both M3A P66 0x18 0 0 16
    EXTRACT_256       "vextractf64x4"  Evex M3A P66 0x1b 0 1 32
    SHUFFLE_D         "vpshufd"        Both M0F P66 0x70 0 0 FULL
    SHUFFLE_B         "vpshufb"        Both M38 P66 0x00 0 0 FULL
    PERMUTE_PS        "vpermps"        Both M38 P66 0x16 0 0 FULL
    PERMUTE_TWO_PS    "vpermt2ps"      Evex M38 P66 0x7f 0 0 FULL
    PERMUTE_TWO_PD    "vpermt2pd"      Evex M38 P66 0x7f 0 1 FULL
    PERMUTE_BY_PS     "vpermi2ps"      Evex M38 P66 0x77 0 0 FULL
    PERMUTE_BY_PD     "vpermi2pd"      Evex M38 P66 0x77 0 1 FULL
    PERMUTE_BY_B      "vpermi2b"       Evex M38 P66 0x75 0 0 FULL
    PERMUTE_128       "vperm2f128"     Vex  M3A P66 0x06 0 0 FULL
    SHUFFLE_128       "vshuff32x4"     Evex M3A P66 0x23 0 0 FULL
    SHUFFLE_PS        "vshufps"        Both M0F NP  0xc6 0 0 FULL
    PERMUTE_Q         "vpermq"         Both M3A P66 0x00 1 1 FULL
    UNPACK_LOW_D      "vpunpckldq"     Both M0F P66 0x62 0 0 FULL
    UNPACK_LOW_Q      "vpunpcklqdq"    Both M0F P66 0x6c 0 1 FULL
    UNPACK_HIGH_D     "vpunpckhdq"     Both M0F P66 0x6a 0 0 FULL
    UNPACK_HIGH_Q     "vpunpckhqdq"    Both M0F P66 0x6d 0 1 FULL
    UNPACK_LOW_B      "vpunpcklbw"     Both M0F P66 0x60 0 0 FULL
    UNPACK_HIGH_B     "vpunpckhbw"     Both M0F P66 0x68 0 0 FULL
    UNPACK_HIGH_W     "vpunpckhwd"     Both M0F P66 0x69 0 0 FULL
    UNPACK_LOW_W      "vpunpcklwd"     Both M0F P66 0x61 0 0 FULL
    INSERT_Q          "vpinsrq"        Both M3A P66 0x22 1 1 8
    INSERT_D          "vpinsrd"        Both M3A P66 0x22 0 0 4
    EXTRACT_Q         "vpextrq"        Both M3A P66 0x16 1 1 8
    EXTRACT_D         "vpextrd"        Both M3A P66 0x16 0 0 4
    INSERT_W          "vpinsrw"        Both M0F P66 0xc4 0 0 2
    INSERT_B          "vpinsrb"        Both M3A P66 0x20 0 0 1
    EXTRACT_B         "vpextrb"        Both M3A P66 0x14 0 0 1
    EXTRACT_W         "vpextrw"        Both M3A P66 0x15 0 0 2
    BLEND_BYTES       "vpblendvb"      Vex  M3A P66 0x4c 0 0 FULL
    BLEND_V           "vblendvps"      Vex  M3A P66 0x4a 0 0 FULL
    BLEND_MASK_PS     "vblendmps"      Evex M38 P66 0x65 0 0 FULL
    BLEND_MASK_PD     "vblendmpd"      Evex M38 P66 0x65 0 1 FULL
    BLEND_MASK_B      "vpblendmb"      Evex M38 P66 0x66 0 0 FULL
    BLEND_MASK_W      "vpblendmw"      Evex M38 P66 0x66 0 1 FULL
    BLEND_PS          "vblendps"       Vex  M3A P66 0x0c 0 0 FULL
    BLEND_D           "vpblendd"       Vex  M3A P66 0x02 0 0 FULL
    // floats
    ADD_PS            "vaddps"         Both M0F NP  0x58 0 0 FULL
    ADD_PD            "vaddpd"         Both M0F P66 0x58 0 1 FULL
    SUB_PS            "vsubps"         Both M0F NP  0x5c 0 0 FULL
    SUB_PD            "vsubpd"         Both M0F P66 0x5c 0 1 FULL
    MUL_PS            "vmulps"         Both M0F NP  0x59 0 0 FULL
    MUL_PD            "vmulpd"         Both M0F P66 0x59 0 1 FULL
    DIV_PS            "vdivps"         Both M0F NP  0x5e 0 0 FULL
    DIV_PD            "vdivpd"         Both M0F P66 0x5e 0 1 FULL
    MIN_PS            "vminps"         Both M0F NP  0x5d 0 0 FULL
    MIN_PD            "vminpd"         Both M0F P66 0x5d 0 1 FULL
    MAX_PS            "vmaxps"         Both M0F NP  0x5f 0 0 FULL
    MAX_PD            "vmaxpd"         Both M0F P66 0x5f 0 1 FULL
    SQRT_PS           "vsqrtps"        Both M0F NP  0x51 0 0 FULL
    SQRT_PD           "vsqrtpd"        Both M0F P66 0x51 0 1 FULL
    ROUND_PS          "vroundps"       Both M3A P66 0x08 0 0 FULL
    ROUND_PD          "vroundpd"       Both M3A P66 0x09 0 1 FULL
    SCALE_PS          "vscalefps"      Evex M38 P66 0x2c 0 0 FULL
    SCALE_PD          "vscalefpd"      Evex M38 P66 0x2c 0 1 FULL
    INVERSE_PS        "vrcp14ps"       Evex M38 P66 0x4c 0 0 FULL
    INVERSE_PD        "vrcp14pd"       Evex M38 P66 0x4c 0 1 FULL
    INVERSE_ROOT_PS   "vrsqrt14ps"     Evex M38 P66 0x4e 0 0 FULL
    FIXUP_PS          "vfixupimmps"    Evex M3A P66 0x54 0 0 FULL
    FIXUP_PD          "vfixupimmpd"    Evex M3A P66 0x54 0 1 FULL
    CLASS_PS          "vfpclassps"     Evex M3A P66 0x66 0 0 FULL
    CLASS_PD          "vfpclasspd"     Evex M3A P66 0x66 0 1 FULL
    REST_PS           "vfnmadd213ps"   Both M38 P66 0xac 0 0 FULL
    REST_PD           "vfnmadd213pd"   Both M38 P66 0xac 1 1 FULL
    FMA_PS            "vfmadd231ps"    Both M38 P66 0xb8 0 0 FULL
    FMA_PD            "vfmadd231pd"    Both M38 P66 0xb8 1 1 FULL
    FMA_PLUS_PS       "vfmadd213ps"    Both M38 P66 0xa8 0 0 FULL
    FMA_PLUS_PD       "vfmadd213pd"    Both M38 P66 0xa8 1 1 FULL
    FMA_TIMES_PS      "vfmadd132ps"    Both M38 P66 0x98 0 0 FULL
    FMA_TIMES_PD      "vfmadd132pd"    Both M38 P66 0x98 1 1 FULL
    FNMA_TIMES_PS     "vfnmadd132ps"   Both M38 P66 0x9c 0 0 FULL
    FNMA_TIMES_PD     "vfnmadd132pd"   Both M38 P66 0x9c 1 1 FULL
    FNMA_PS           "vfnmadd231ps"   Both M38 P66 0xbc 0 0 FULL
    FNMA_PD           "vfnmadd231pd"   Both M38 P66 0xbc 1 1 FULL
    COMPARE_PS        "vcmpps"         Both M0F NP  0xc2 0 0 FULL
    COMPARE_PD        "vcmppd"         Both M0F P66 0xc2 0 1 FULL
    // integers
    ADD_B             "vpaddb"         Both M0F P66 0xfc 0 0 FULL
    ADD_W             "vpaddw"         Both M0F P66 0xfd 0 0 FULL
    SUB_B             "vpsubb"         Both M0F P66 0xf8 0 0 FULL
    SUB_W             "vpsubw"         Both M0F P66 0xf9 0 0 FULL
    MUL_W             "vpmullw"        Both M0F P66 0xd5 0 0 FULL
    MUL_HIGH_W        "vpmulhw"        Both M0F P66 0xe5 0 0 FULL
    MUL_PAIRS_W       "vpmaddwd"       Both M0F P66 0xf5 0 0 FULL
    MUL_HIGH_UW       "vpmulhuw"       Both M0F P66 0xe4 0 0 FULL
    MIN_B             "vpminsb"        Both M38 P66 0x38 0 0 FULL
    MIN_UB            "vpminub"        Both M0F P66 0xda 0 0 FULL
    MIN_W             "vpminsw"        Both M0F P66 0xea 0 0 FULL
    MIN_UW            "vpminuw"        Both M38 P66 0x3a 0 0 FULL
    MAX_B             "vpmaxsb"        Both M38 P66 0x3c 0 0 FULL
    MAX_UB            "vpmaxub"        Both M0F P66 0xde 0 0 FULL
    MAX_W             "vpmaxsw"        Both M0F P66 0xee 0 0 FULL
    MAX_UW            "vpmaxuw"        Both M38 P66 0x3e 0 0 FULL
    ADD_D             "vpaddd"         Both M0F P66 0xfe 0 0 FULL
    ADD_Q             "vpaddq"         Both M0F P66 0xd4 0 1 FULL
    SUB_D             "vpsubd"         Both M0F P66 0xfa 0 0 FULL
    SUB_Q             "vpsubq"         Both M0F P66 0xfb 0 1 FULL
    MUL_D             "vpmulld"        Both M38 P66 0x40 0 0 FULL
    MUL_Q             "vpmullq"        Evex M38 P66 0x40 0 1 FULL
    MUL_UDQ           "vpmuludq"       Both M0F P66 0xf4 0 1 FULL
    MIN_D             "vpminsd"        Both M38 P66 0x39 0 0 FULL
    MIN_Q             "vpminsq"        Evex M38 P66 0x39 0 1 FULL
    MAX_D             "vpmaxsd"        Both M38 P66 0x3d 0 0 FULL
    MAX_Q             "vpmaxsq"        Evex M38 P66 0x3d 0 1 FULL
    ABS_B             "vpabsb"         Both M38 P66 0x1c 0 0 FULL
    ABS_W             "vpabsw"         Both M38 P66 0x1d 0 0 FULL
    ABS_D             "vpabsd"         Both M38 P66 0x1e 0 0 FULL
    ABS_Q             "vpabsq"         Evex M38 P66 0x1f 0 1 FULL
    COUNT_ONES_D      "vpopcntd"       Evex M38 P66 0x55 0 0 FULL
    COUNT_ONES_Q      "vpopcntq"       Evex M38 P66 0x55 0 1 FULL
    AND               "vpand"          Both M0F P66 0xdb 0 0 FULL
    AND_NOT           "vpandn"         Both M0F P66 0xdf 0 0 FULL
    OR                "vpor"           Both M0F P66 0xeb 0 0 FULL
    XOR               "vpxor"          Both M0F P66 0xef 0 0 FULL
    TERNARY           "vpternlogd"     Evex M3A P66 0x25 0 0 FULL
    SHIFT_W           "vpsllw"         Both M0F P66 0x71 0 0 FULL
    SHIFT_D           "vpslld"         Both M0F P66 0x72 0 0 FULL
    SHIFT_Q           "vpsllq"         Both M0F P66 0x73 0 1 FULL
    SHIFT_ARITHMETIC_Q "vpsraq"         Evex M0F P66 0x72 0 1 FULL
    SHIFT_LEFT_BY_D   "vpsllvd"        Both M38 P66 0x47 0 0 FULL
    SHIFT_LEFT_BY_Q   "vpsllvq"        Both M38 P66 0x47 1 1 FULL
    SHIFT_RIGHT_BY_D  "vpsrlvd"        Both M38 P66 0x45 0 0 FULL
    SHIFT_RIGHT_BY_Q  "vpsrlvq"        Both M38 P66 0x45 1 1 FULL
    SHIFT_SIGNED_BY_D "vpsravd"        Both M38 P66 0x46 0 0 FULL
    SHIFT_SIGNED_BY_Q "vpsravq"        Evex M38 P66 0x46 0 1 FULL
    EQUAL_B           "vpcmpeqb"       Vex  M0F P66 0x74 0 0 FULL
    EQUAL_W           "vpcmpeqw"       Vex  M0F P66 0x75 0 0 FULL
    GREATER_B         "vpcmpgtb"       Vex  M0F P66 0x64 0 0 FULL
    GREATER_W         "vpcmpgtw"       Vex  M0F P66 0x65 0 0 FULL
    EQUAL_D           "vpcmpeqd"       Vex  M0F P66 0x76 0 0 FULL
    EQUAL_Q           "vpcmpeqq"       Vex  M38 P66 0x29 0 0 FULL
    GREATER_D         "vpcmpgtd"       Vex  M0F P66 0x66 0 0 FULL
    GREATER_Q         "vpcmpgtq"       Vex  M38 P66 0x37 0 0 FULL
    COMPARE_B         "vpcmpb"         Evex M3A P66 0x3f 0 0 FULL
    COMPARE_UB        "vpcmpub"        Evex M3A P66 0x3e 0 0 FULL
    COMPARE_W         "vpcmpw"         Evex M3A P66 0x3f 0 1 FULL
    COMPARE_UW        "vpcmpuw"        Evex M3A P66 0x3e 0 1 FULL
    COMPARE_UD        "vpcmpud"        Evex M3A P66 0x1e 0 0 FULL
    COMPARE_D         "vpcmpd"         Evex M3A P66 0x1f 0 0 FULL
    COMPARE_Q         "vpcmpq"         Evex M3A P66 0x1f 0 1 FULL
    MASK_TO_B         "vpmovm2b"       Evex M38 PF3 0x28 0 0 FULL
    MASK_TO_W         "vpmovm2w"       Evex M38 PF3 0x28 0 1 FULL
    MASK_TO_D         "vpmovm2d"       Evex M38 PF3 0x38 0 0 FULL
    MASK_TO_Q         "vpmovm2q"       Evex M38 PF3 0x38 0 1 FULL
    // conversions
    EXTEND_BW         "vpmovsxbw"      Both M38 P66 0x20 0 0 HALF
    EXTEND_WD         "vpmovsxwd"      Both M38 P66 0x23 0 0 HALF
    ZERO_EXTEND_BW    "vpmovzxbw"      Both M38 P66 0x30 0 0 HALF
    EXTEND_BD         "vpmovsxbd"      Both M38 P66 0x21 0 0 QUARTER
    EXTEND_BQ         "vpmovsxbq"      Both M38 P66 0x22 0 0 EIGHTH
    EXTEND_DQ         "vpmovsxdq"      Both M38 P66 0x25 0 0 HALF
    ZERO_EXTEND_BD    "vpmovzxbd"      Both M38 P66 0x31 0 0 QUARTER
    ZERO_EXTEND_WD    "vpmovzxwd"      Both M38 P66 0x33 0 0 HALF
    ZERO_EXTEND_BQ    "vpmovzxbq"      Both M38 P66 0x32 0 0 EIGHTH
    NARROW_WB         "vpmovwb"        Evex M38 PF3 0x30 0 0 HALF
    NARROW_DB         "vpmovdb"        Evex M38 PF3 0x31 0 0 QUARTER
    NARROW_DW         "vpmovdw"        Evex M38 PF3 0x33 0 0 HALF
    NARROW_QB         "vpmovqb"        Evex M38 PF3 0x32 0 0 EIGHTH
    NARROW_QD         "vpmovqd"        Evex M38 PF3 0x35 0 0 HALF
    I32_TO_F32        "vcvtdq2ps"      Both M0F NP  0x5b 0 0 FULL
    I32_TO_F64        "vcvtdq2pd"      Both M0F PF3 0xe6 0 0 HALF
    I64_TO_F32        "vcvtqq2ps"      Evex M0F NP  0x5b 0 1 FULL
    I64_TO_F64        "vcvtqq2pd"      Evex M0F PF3 0xe6 0 1 FULL
    F32_TO_F64        "vcvtps2pd"      Both M0F NP  0x5a 0 0 HALF
    F64_TO_F32        "vcvtpd2ps"      Both M0F P66 0x5a 0 1 FULL
    F32_TO_I32        "vcvttps2dq"     Both M0F PF3 0x5b 0 0 FULL
    F64_TO_I32        "vcvttpd2dq"     Both M0F P66 0xe6 0 1 FULL
    F32_TO_I64        "vcvttps2qq"     Evex M0F P66 0x7a 0 0 HALF
    F64_TO_I64        "vcvttpd2qq"     Evex M0F P66 0x7a 0 1 FULL
    F16_TO_F32        "vcvtph2ps"      Both M38 P66 0x13 0 0 HALF
    F32_TO_F16        "vcvtps2ph"      Both M3A P66 0x1d 0 0 HALF
    F32_TO_BF16       "vcvtneps2bf16" Evex M38 PF3 0x72 0 0 FULL
    SCALAR_I64_TO_F32 "vcvtsi2ss"      Both M0F PF3 0x2a 1 1 8
    SCALAR_F32_TO_I64 "vcvttss2si"     Both M0F PF3 0x2c 1 1 4
    SCALAR_F64_TO_I64 "vcvttsd2si"     Both M0F PF2 0x2c 1 1 8
    // mask registers
    B_TO_MASK         "vpmovb2m"       Evex M38 PF3 0x29 0 0 FULL
    D_TO_MASK         "vpmovd2m"       Evex M38 PF3 0x39 0 0 FULL
    Q_TO_MASK         "vpmovq2m"       Evex M38 PF3 0x39 0 1 FULL
    MASK_LOAD         "kmovq"          Vex  M0F NP  0x90 1 1 8
}

//! `parse(print(file)) == file` for random trees, and layout and comments mean nothing.

use proptest::prelude::*;
use tilewright::DType;
use tilewright::internal::expr::syntax::Span;
use tilewright::internal::expr::syntax::{DTYPES, Expr, FUNCTIONS, Kind, Name, OPERATORS};
use tilewright::internal::language;
use tilewright::internal::language::parser::parse;
use tilewright::internal::language::syntax::*;
use tilewright::internal::poly::transform::primitive::{ALIASES, Loop, Loops, Placed, Primitive, Read, Schedule};

fn name() -> impl Strategy<Value = Name> {
    "[a-zA-Z_][a-z0-9_]{0,3}"
        .prop_filter("reserved", |w| language::lexer::reserved(w).is_none())
        .prop_map(|w| w.as_str().into())
}

fn dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(DTYPES.to_vec())
}

/// An expression of a def (where elements have parentheses) or of a loop.
fn expr(round: bool) -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        (0..1000i64).prop_map(Kind::Integer),
        (0..100i64).prop_map(|v| Kind::Integer(-v)),
        (0.0..1e9f64).prop_map(Kind::Real),
        Just(Kind::Real(f64::INFINITY)),
        any::<bool>().prop_map(Kind::Bool),
        name().prop_map(|n| Kind::Name(n.text)),
    ];
    leaf.prop_map(Expr::new).prop_recursive(5, 40, 3, move |inner| {
        let pair = (inner.clone(), inner.clone());
        let least = usize::from(!round);
        let function = prop::sample::select(FUNCTIONS.to_vec());
        prop_oneof![
            (name(), prop::collection::vec(inner.clone(), least..4)).prop_map(|(n, s)| Kind::Element(n, s)),
            (function, prop::collection::vec(inner.clone(), 3)).prop_map(|(f, mut operands)| {
                operands.truncate(f.1.operands());
                Kind::Call(f.1, operands)
            }),
            (dtype(), inner.clone()).prop_map(|(d, a)| Kind::Cast(d, Box::new(a))),
            inner.clone().prop_map(|a| match a.kind {
                Kind::Integer(v) if v >= 0 => Kind::Integer(-v),
                Kind::Real(v) if v >= 0.0 => Kind::Real(-v),
                _ => Kind::Negate(Box::new(a)),
            }),
            inner.prop_map(|a| Kind::Not(Box::new(a))),
            (prop::sample::select(OPERATORS.to_vec()), pair).prop_map(|(o, (a, b))| Kind::Binary(
                o.1,
                Box::new(a),
                Box::new(b)
            )),
        ]
        .prop_map(Expr::new)
    })
}

fn range(round: bool) -> impl Strategy<Value = Range> {
    (expr(round), expr(round)).prop_map(|(lower, upper)| Range { lower, upper })
}

fn equation(round: bool) -> impl Strategy<Value = Equation> {
    let condition = prop_oneof![
        (name(), range(round)).prop_map(|(n, r)| Condition::Range(n, r)),
        expr(round).prop_map(Condition::Holds),
    ];
    let left = (name(), prop::collection::vec(expr(round), 0..3), prop::sample::select(ASSIGNMENTS.to_vec()));
    (left, expr(round), prop::collection::vec(condition, 0..3)).prop_map(
        |((target, subscripts, assign), value, conditions)| Equation {
            target,
            subscripts,
            assign: assign.1,
            value,
            conditions,
            span: Span::default(),
        },
    )
}

fn statement() -> impl Strategy<Value = Statement> {
    let updates = ASSIGNMENTS.into_iter().filter(|a| !matches!(a.1, Assign::Reduce(_))).collect::<Vec<_>>();
    let left = (prop::option::of(name()), name(), prop::collection::vec(expr(false), 0..3));
    let assign =
        (left, prop::sample::select(updates), expr(false)).prop_map(|((label, target, subscripts), assign, value)| {
            let span = Span::default();
            Statement::Assign(Assignment { label, target, subscripts, assign: assign.1, value, span })
        });
    assign.prop_recursive(3, 12, 3, |inner| {
        let block = prop::collection::vec(inner, 1..3);
        prop_oneof![
            (name(), range(false), (1..9i64, any::<bool>()), block.clone()).prop_map(
                |(index, range, (n, down), body)| {
                    Statement::For { index, range, step: if down { -n } else { n }, body }
                }
            ),
            (expr(false), block.clone(), prop::option::of(block)).prop_map(|(condition, body, otherwise)| {
                Statement::If { condition, body, otherwise: otherwise.unwrap_or_default() }
            }),
        ]
    })
}

fn array(round: bool) -> impl Strategy<Value = Array> {
    let access = prop::sample::select(vec![
        None,
        Some(Access::In),
        Some(Access::Out),
        Some(Access::InOut),
        Some(Access::Temporary),
    ]);
    (access, dtype(), name(), prop::collection::vec(expr(round), 0..3))
        .prop_map(move |(access, dtype, name, shape)| Array { access: access.filter(|_| !round), dtype, name, shape })
}

fn program() -> impl Strategy<Value = Program> {
    let list = |round| prop::collection::vec(array(round), 0..3);
    let output = (name(), prop::option::of((dtype(), prop::collection::vec(expr(true), 0..3))));
    let outputs = output.prop_map(|(name, declared)| Output { name, declared });
    let equations = |round| prop::collection::vec(equation(round), 0..3);
    let def = (list(true), prop::collection::vec(outputs, 0..3), equations(true), equations(true))
        .prop_map(|(inputs, outputs, equations, initial)| (Body::Def { inputs, outputs, equations }, initial));
    let parameter = (name(), prop::option::of(-9..9i64)).prop_map(|(name, value)| Parameter { name, value });
    let statements = prop::collection::vec(statement(), 0..3);
    let loops = (prop::collection::vec(parameter, 0..3), list(false), statements, equations(false))
        .prop_map(|(parameters, arrays, statements, initial)| (Body::Loop { parameters, arrays, statements }, initial));
    let values = prop::collection::vec((name(), 0..99i64), 0..3);
    let sizes = prop::option::of((name(), values)).prop_map(|s| s.map(|(name, values)| Sizes { name, values }));
    (name(), sizes, prop_oneof![def, loops]).prop_map(|(name, sizes, (body, initial))| Program {
        name,
        sizes: sizes.into_iter().collect(),
        initial,
        body,
    })
}

fn primitive() -> impl Strategy<Value = Primitive> {
    let one = || (prop::option::of(name()), name()).prop_map(|(statement, name)| Loop { statement, name });
    let names =
        |n| prop::collection::hash_set("[a-d]{2}", n).prop_map(|s| s.iter().map(|w| w.as_str().into()).collect());
    let loops = |n| (prop::option::of(name()), names(n)).prop_map(|(statement, names)| Loops { statement, names });
    let at = || (name(), one());
    prop_oneof![
        (one(), 1..9i64, names(2)).prop_map(|(which, by, into): (_, _, Vec<Name>)| Primitive::Split {
            which,
            by,
            into: into.try_into().unwrap()
        }),
        (loops(2), name()).prop_map(|(which, into)| Primitive::Fuse { which, into }),
        loops(3).prop_map(|which| Primitive::Reorder { which }),
        (loops(2), names(4)).prop_map(|(which, into)| Primitive::Tile { which, by: vec![3, 5], into }),
        (one(), -5..5i64, name()).prop_map(|(which, factor, by)| Primitive::Skew { which, factor, by }),
        (one(), -5..5i64).prop_map(|(which, by)| Primitive::Shift { which, by }),
        one().prop_map(|which| Primitive::Reverse { which }),
        (names(2), name()).prop_map(|(statements, at)| Primitive::Merge { statements, at }),
        (names(2), name()).prop_map(|(statements, at)| Primitive::Distribute { statements, at }),
        (one(), prop::option::of(1..9i64)).prop_map(|(which, by)| Primitive::Unroll { which, by }),
        (one(), 1..9i64).prop_map(|(which, by)| Primitive::UnrollAndJam { which, by }),
        (one(), prop::option::of(1..9i64)).prop_map(|(which, by)| Primitive::Vectorize { which, by }),
        one().prop_map(|which| Primitive::Parallel { which }),
        at().prop_map(|(tensor, at)| Primitive::ComputeAt { tensor, at }),
        name().prop_map(|tensor| Primitive::ComputeInline { tensor }),
        at().prop_map(|(tensor, at)| Primitive::StoreAt { tensor, at }),
        at().prop_map(|(tensor, at)| Primitive::CacheRead { tensor, at: Some(at) }),
        name().prop_map(|tensor| Primitive::CacheRead { tensor, at: None }),
        prop::collection::vec(name(), 1..4).prop_map(|statements| Primitive::Sequence { statements }),
        one().prop_map(|which| Primitive::Wavefront { which }),
        prop::sample::select(vec![
            Primitive::Serial,
            Primitive::Normalize,
            Primitive::DomainSplit,
            Primitive::Coalesce,
            Primitive::IndexSetSplit,
            Primitive::ArrayExpand,
            Primitive::StatementSplit
        ]),
        at().prop_map(|(tensor, at)| Primitive::CacheWrite { tensor, at }),
        (name(), prop::collection::vec(expr(true), 1..3))
            .prop_map(|(tensor, layout)| Primitive::Pack { tensor, layout }),
        (prop::option::of(name()), name(), prop::collection::vec(expr(true), 1..3))
            .prop_map(|(statement, tensor, layout)| Primitive::PackRead { read: Read { statement, tensor }, layout }),
        (at(), name()).prop_map(|((tensor, over), into)| Primitive::Rfactor { tensor, over, into }),
        (loops(3), prop::option::of(name())).prop_map(|(which, with)| Primitive::Tensorize { which, with }),
        one().prop_map(|which| Primitive::Peel { which }),
        (one(), 1..9i64).prop_map(|(which, to)| Primitive::Pad { which, to }),
    ]
}

fn file() -> impl Strategy<Value = File> {
    let placed = primitive().prop_map(|primitive| Placed { primitive, span: Span::default() });
    let schedule = (name(), name(), prop::collection::vec(placed, 0..6))
        .prop_map(|(name, program, primitives)| Schedule { name, program, primitives });
    (prop::option::of(program()), prop::option::of(schedule)).prop_map(|(p, s)| File {
        programs: p.into_iter().collect(),
        schedules: s.into_iter().collect(),
        ..File::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn text_survives_printing_and_parsing(file in file()) {
        let text = file.to_string();
        let parsed = parse("random.tile", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        prop_assert_eq!(&parsed, &file, "{}", text);
        // Comments between all tokens change nothing.
        let commented = text.replace(' ', "  # a comment: ) } ]\n ").replace('\n', "\r\n\t");
        let parsed = parse("random.tile", &commented).unwrap_or_else(|e| panic!("{e}\n{commented}"));
        prop_assert_eq!(parsed, file);
    }

    #[test]
    fn random_characters_never_panic(text in "(def|loop|schedule|for|in|[a-c(){}\\[\\]=+*,;:.0-9<>!-]| |\n){0,40}") {
        let _ = parse("random.tile", &text);
    }
}

#[test]
fn separators_and_braces_are_a_matter_of_taste() {
    let dense = "loop s(N){f64 A[N],b;for i in 1..N-1 for j in 0..i{A[i]=A[j]*2;b+=1}}";
    let wide =
        "loop s(N) {\n f64 A[N]\n f64 b\n for i in 1 .. N - 1 { for j in 0..i { A[i] = (A[j]) * 2\n b += 1 } }\n}";
    assert_eq!(parse("a", dense).unwrap(), parse("b", wide).unwrap());
    assert_ne!(parse("a", dense).unwrap(), parse("b", &wide.replace("* 2", "* 3")).unwrap());
}

#[test]
fn old_keywords_of_primitives_are_parsed_and_the_new_ones_printed() {
    assert!(!ALIASES.is_empty());
    for (old, keyword) in ALIASES {
        let text = |word: &str| format!("schedule s for p {{\n    {word}\n}}\n");
        assert_eq!(parse("old.tile", &text(old)).unwrap().schedules[0].to_string(), text(keyword));
    }
}

//! Plural rules: the `Plural-Forms` header of a PO file says which plural form a number takes.
//!
//! A rule is a C expression in `n` over unsigned 64-bit numbers with wrapping arithmetic, as in GNU gettext (plural.y):
//! `?:`, `||`, `&&`, `==`, `!=`, `<`, `>`, `<=`, `>=`, `+`, `-`, `*`, `/`, `%`, `!`, brackets, decimal numbers. It is
//! parsed once into a flat list of nodes. Evaluation allocates nothing and never fails: if the expression divides by zero
//! or gives a form that does not exist, the first form is taken, as in libintl's `plural_lookup`.
//!
//! Length and nesting are [limited](crate::limits), so a hostile rule costs a few microseconds.

use crate::error::PluralRuleError;
use crate::limits::{PLURAL_DEPTH_MAX, PLURAL_FORM_COUNT_MAX, PLURAL_RULE_BYTES_MAX};

/// A rule is tried with the numbers from 0 to this when it is read, as `msgfmt -c` does.
const TRIAL_MAX: u64 = 1000;

/// Which plural form of a language a number takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluralRule {
    nodes: Vec<Node>,
    /// For each form, the only tried number that takes it; `None` if several numbers or none take it.
    only: Vec<Option<u64>>,
    /// The first tried number for which the expression gives no existing form.
    outlier: Option<u64>,
}

/// The children of a node are before it in the list. The last node is the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    N,
    Number(u64),
    Not(usize),
    Binary(Operator, usize, usize),
    Choice(usize, usize, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// The operators with their precedence, lowest first. A longer spelling is before its prefix.
const OPERATORS: [(&str, Operator, u8); 13] = [
    ("||", Operator::Or, 1),
    ("&&", Operator::And, 2),
    ("==", Operator::Equal, 3),
    ("!=", Operator::NotEqual, 3),
    ("<=", Operator::LessOrEqual, 4),
    (">=", Operator::GreaterOrEqual, 4),
    ("<", Operator::Less, 4),
    (">", Operator::Greater, 4),
    ("+", Operator::Add, 5),
    ("-", Operator::Subtract, 5),
    ("*", Operator::Multiply, 6),
    ("/", Operator::Divide, 6),
    ("%", Operator::Remainder, 6),
];

impl PluralRule {
    /// Parses the value of the header, for example `nplurals=2; plural=n != 1;`.
    ///
    /// # Errors
    /// When the value does not have this form, or is over a limit.
    pub fn parse(text: &str) -> Result<Self, PluralRuleError> {
        if text.len() > PLURAL_RULE_BYTES_MAX {
            return Err(PluralRuleError::TooLong { bytes: text.len() });
        }
        let rest = text.trim_ascii().strip_prefix("nplurals=").ok_or(PluralRuleError::Shape)?;
        let (count, rest) = rest.split_once(';').ok_or(PluralRuleError::Shape)?;
        let expression = rest.trim_ascii().strip_prefix("plural=").ok_or(PluralRuleError::Shape)?;
        let expression = expression.strip_suffix(';').unwrap_or(expression);
        let count = count.trim_ascii();
        let form_count = count
            .parse()
            .ok()
            .filter(|number| {
                count.bytes().all(|byte| byte.is_ascii_digit()) && (1..=PLURAL_FORM_COUNT_MAX).contains(number)
            })
            .ok_or_else(|| PluralRuleError::FormCount { found: count.chars().take(32).collect() })?;
        Ok(Self::tried(Parser::parse(expression)?, form_count))
    }

    fn tried(nodes: Vec<Node>, form_count: usize) -> Self {
        let mut rule = Self { nodes, only: vec![None; form_count], outlier: None };
        let mut uses = vec![0; form_count];
        for n in 0..=TRIAL_MAX {
            let Some(form) = rule.checked_index(n) else {
                rule.outlier = rule.outlier.or(Some(n));
                continue;
            };
            uses[form] += 1;
            rule.only[form] = (uses[form] == 1).then_some(n);
        }
        rule
    }

    /// The number of forms, at least one.
    pub fn form_count(&self) -> usize {
        self.only.len()
    }

    /// The form of a number, below [`form_count`](Self::form_count). It is the first form if the expression gives none.
    pub fn index(&self, n: u64) -> usize {
        self.checked_index(n).unwrap_or(0)
    }

    /// The first number up to 1000 for which the expression gives no existing form. `None` for a correct rule.
    pub fn outlier(&self) -> Option<u64> {
        self.outlier
    }

    /// The number that takes this form, if it is the only one up to 1000. The text of such a form need not show the
    /// number.
    pub fn only(&self, form: usize) -> Option<u64> {
        self.only.get(form).copied().flatten()
    }

    /// The first numbers that take this form, up to 1000.
    pub(crate) fn numbers(&self, form: usize) -> impl Iterator<Item = u64> {
        (0..=TRIAL_MAX).filter(move |n| self.index(*n) == form)
    }

    /// Whether both rules have the same forms, and choose the same form for every number up to 1000.
    pub(crate) fn chooses_like(&self, other: &Self) -> bool {
        self.form_count() == other.form_count() && (0..=TRIAL_MAX).all(|n| self.index(n) == other.index(n))
    }

    fn checked_index(&self, n: u64) -> Option<usize> {
        let value = self.value(self.nodes.len() - 1, n)?;
        usize::try_from(value).ok().filter(|form| *form < self.form_count())
    }

    /// `None` on division by zero. Recursion is bounded: the parser refuses deep trees.
    fn value(&self, node: usize, n: u64) -> Option<u64> {
        Some(match self.nodes[node] {
            Node::N => n,
            Node::Number(number) => number,
            Node::Not(operand) => u64::from(self.value(operand, n)? == 0),
            Node::Choice(condition, yes, no) => self.value(if self.value(condition, n)? != 0 { yes } else { no }, n)?,
            Node::Binary(operator, left, right) => {
                let left = self.value(left, n)?;
                let right = || self.value(right, n);
                match operator {
                    Operator::Or => u64::from(left != 0 || right()? != 0),
                    Operator::And => u64::from(left != 0 && right()? != 0),
                    Operator::Equal => u64::from(left == right()?),
                    Operator::NotEqual => u64::from(left != right()?),
                    Operator::LessOrEqual => u64::from(left <= right()?),
                    Operator::GreaterOrEqual => u64::from(left >= right()?),
                    Operator::Less => u64::from(left < right()?),
                    Operator::Greater => u64::from(left > right()?),
                    Operator::Add => left.wrapping_add(right()?),
                    Operator::Subtract => left.wrapping_sub(right()?),
                    Operator::Multiply => left.wrapping_mul(right()?),
                    Operator::Divide => left.checked_div(right()?)?,
                    Operator::Remainder => left.checked_rem(right()?)?,
                }
            }
        })
    }
}

/// The rule of English and many other languages: for the source text, and for a file without a rule.
impl Default for PluralRule {
    fn default() -> Self {
        let nodes = vec![Node::N, Node::Number(1), Node::Binary(Operator::NotEqual, 0, 1)];
        Self::tried(nodes, 2)
    }
}

/// Precedence climbing over the bytes of the expression.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    nodes: Vec<Node>,
    /// Height of the tree under each node.
    heights: Vec<usize>,
}

impl<'a> Parser<'a> {
    fn parse(text: &'a str) -> Result<Vec<Node>, PluralRuleError> {
        let mut parser = Self { text, at: 0, nodes: Vec::new(), heights: Vec::new() };
        parser.choice(0)?;
        if parser.at < text.len() {
            return Err(PluralRuleError::Syntax { at: parser.at });
        }
        Ok(parser.nodes)
    }

    fn choice(&mut self, depth: usize) -> Result<usize, PluralRuleError> {
        let condition = self.binary(0, depth)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.choice(deeper(depth)?)?;
        if !self.take(":") {
            return Err(PluralRuleError::Syntax { at: self.at });
        }
        let no = self.choice(deeper(depth)?)?;
        self.push(Node::Choice(condition, yes, no), &[condition, yes, no])
    }

    /// Parses a chain of operators with a precedence above `level`. All operators are left-associative.
    fn binary(&mut self, level: u8, depth: usize) -> Result<usize, PluralRuleError> {
        let mut left = self.operand(depth)?;
        while let Some((spelling, operator, binding)) = self.operator().filter(|(.., binding)| *binding > level) {
            self.at += spelling.len();
            let right = self.binary(binding, depth)?;
            left = self.push(Node::Binary(operator, left, right), &[left, right])?;
        }
        Ok(left)
    }

    fn operand(&mut self, depth: usize) -> Result<usize, PluralRuleError> {
        if self.take("!") {
            let operand = self.operand(deeper(depth)?)?;
            return self.push(Node::Not(operand), &[operand]);
        }
        if self.take("(") {
            let inner = self.choice(deeper(depth)?)?;
            return if self.take(")") { Ok(inner) } else { Err(PluralRuleError::Syntax { at: self.at }) };
        }
        if self.take("n") {
            return self.push(Node::N, &[]);
        }
        let at = self.at;
        let digits = self.text[at..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(PluralRuleError::Syntax { at });
        }
        self.at += digits;
        let number = self.text[at..self.at].parse().map_err(|_| PluralRuleError::Number { at })?;
        self.skip_space();
        self.push(Node::Number(number), &[])
    }

    fn operator(&self) -> Option<(&'static str, Operator, u8)> {
        OPERATORS.into_iter().find(|(spelling, ..)| self.text[self.at..].starts_with(spelling))
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
            self.skip_space();
        }
        found
    }

    fn skip_space(&mut self) {
        self.at += self.text[self.at..].bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    }

    fn push(&mut self, node: Node, children: &[usize]) -> Result<usize, PluralRuleError> {
        let below = children.iter().map(|child| self.heights[*child]).max().unwrap_or(0);
        self.heights.push(deeper(below)?);
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }
}

fn deeper(depth: usize) -> Result<usize, PluralRuleError> {
    if depth < PLURAL_DEPTH_MAX { Ok(depth + 1) } else { Err(PluralRuleError::TooDeep) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(expression: &str, n: u64) -> Option<u64> {
        let nodes = Parser::parse(expression).unwrap();
        let rule = PluralRule { nodes, only: Vec::new(), outlier: None };
        rule.value(rule.nodes.len() - 1, n)
    }

    #[test]
    fn operators_bind_and_associate_as_in_c() {
        for (expression, n, expected) in [
            ("1+2*3", 0, 7),
            ("(1+2)*3", 0, 9),
            ("10-4-3", 0, 3),
            ("100/10/5", 0, 2),
            ("7%4%2", 0, 1),
            ("1||0&&0", 0, 1),
            ("1==1==1", 0, 1),
            ("3>2>1", 0, 0),
            ("2<3==1", 0, 1),
            ("!n+1", 0, 2),
            ("!!n", 7, 1),
            ("n?1:n?2:3", 0, 3),
            ("n ? 0 ? 4 : 5 : 6", 1, 5),
            ("0 ? 1 : 0 || 1", 0, 1),
            ("n-1", 0, u64::MAX),
            ("18446744073709551615+2", 0, 1),
        ] {
            assert_eq!(value(expression, n), Some(expected), "{expression}");
        }
    }

    #[test]
    fn unused_operands_are_not_evaluated() {
        assert_eq!(value("n==0 || 1/n", 0), Some(1));
        assert_eq!(value("n!=0 && 1/n", 0), Some(0));
        assert_eq!(value("n==0 ? 3 : 1/n", 0), Some(3));
        assert_eq!(value("1%n", 0), None);
    }

    #[test]
    fn without_an_existing_form_the_first_is_taken_and_the_number_is_reported() {
        for (rule, outlier) in
            [("nplurals=2; plural=n%0;", 0), ("nplurals=2; plural=n/(n-5);", 5), ("nplurals=3; plural=n;", 3)]
        {
            let rule = PluralRule::parse(rule).unwrap();
            assert_eq!(rule.outlier(), Some(outlier));
            assert_eq!(rule.index(outlier), 0);
        }
    }

    #[test]
    fn a_form_that_only_one_number_takes_is_known() {
        let polish = "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);";
        let polish = PluralRule::parse(polish).unwrap();
        assert_eq!([polish.only(0), polish.only(1), polish.only(2), polish.only(3)], [Some(1), None, None, None]);
        let french = PluralRule::parse("nplurals=2; plural=n > 1").unwrap();
        assert_eq!(french.only(0), None, "0 and 1 take this form");
        assert_eq!(PluralRule::default(), PluralRule::parse("nplurals=2; plural=n != 1;").unwrap());
    }

    #[test]
    fn hostile_rules_are_refused() {
        let deep = |open: &str, count: usize, close: &str| {
            format!("nplurals=2; plural={}n{}", open.repeat(count), close.repeat(count))
        };
        for rule in [
            "",
            "nplurals=2",
            "nplurals=2;",
            "plural=n",
            "nplurals=; plural=n",
            "nplurals=0; plural=n",
            "nplurals=17; plural=n",
            "nplurals=+2; plural=n",
            "nplurals=INTEGER; plural=EXPRESSION;",
            "nplurals=2; plural=",
            "nplurals=2; plural=;",
            "nplurals=2; plural=n n",
            "nplurals=2; plural=n=1",
            "nplurals=2; plural=(n",
            "nplurals=2; plural=n)",
            "nplurals=2; plural=n?1",
            "nplurals=2; plural=n?:1",
            "nplurals=2; plural=-1",
            "nplurals=2; plural=n & 1",
            "nplurals=2; plural=n;;",
            "nplurals=2; plural=m",
            "nplurals=2; plural=n!1",
            "nplurals=2; plural=18446744073709551616",
            "nplurals=2; plural=é",
            "nplurals=2; plural=n<é",
            &deep("(", 10_000, ")"),
            &deep("(", 500, ")"),
            &deep("!", 500, ""),
            &deep("n+", 500, ""),
            &deep("n?", 400, ":1"),
            &deep("n?1:", 400, ""),
            &deep("n-(", 100, ")"),
        ] {
            assert!(PluralRule::parse(rule).is_err(), "{rule}");
        }
        assert!(PluralRule::parse(&deep("(", 40, ")")).is_ok());
    }

    proptest! {
        #[test]
        fn any_rule_is_refused_or_gives_an_existing_form(
            forms in 1usize..=16,
            expression in "[n0-9()!?:|&=<>+*/% -]{0,40}",
            n: u64,
        ) {
            if let Ok(rule) = PluralRule::parse(&format!("nplurals={forms}; plural={expression};")) {
                prop_assert_eq!(rule.form_count(), forms);
                prop_assert!(rule.index(n) < forms && rule.index(u64::MAX) < forms);
            }
        }
    }
}

Feature: In their own language
  Everybody is told in the language of their device, with the right plural; a text that would be wrong is never sent.

  Scenario Outline: The same goal in several languages: <language>
    Given Ada's phone in the language "<language>" is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" by "Sweden"
    Then Ada's phone shows "<title>"

    Examples:
      | language | title              |
      | en       | Goal for Sweden!   |
      | pl       | Gol: Sweden!       |
      | pl-PL    | Gol: Sweden!       |
      | fi       | Goal for Sweden!   |

  Scenario Outline: Polish counts in three ways: <goals>
    Given Ada's phone in the language "pl" is subscribed to "score" of "team:42"
    When the backend tells of <goals> goals in a "score" about "team:42"
    Then Ada's phone shows "<title>"

    Examples:
      | goals | title     |
      | 1     | 1 gol     |
      | 3     | 3 gole    |
      | 5     | 5 goli    |

  Scenario: An event with its own words
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    And Bob's phone in the language "fi" is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" with the text "Nareszcie!" in "pl" and "At last!" in all others
    Then Ada's phone shows "Nareszcie!"
    And Bob's phone shows "At last!"

  Scenario: A missing word is noticed before anything is sent
    When the backend tells of a "goal" about "team:42" without saying by whom
    Then the event is refused, naming "params"

  Scenario: A text that is too long for the provider is noticed before anything is sent
    When the backend tells of a "goal" about "team:42" with 6000 bytes of data
    Then the event is refused, naming the bytes

  @unwritten
  Scenario: New translations are taken in without a restart
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    When the translators change the Polish text to "Bramka!" and the operator reloads
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone shows "Bramka!"

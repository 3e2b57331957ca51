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

  Scenario Outline: Polish speaks of a woman and of a man in different words: <gender>
    Given Ada's phone in the language "pl" is subscribed to "red-card" of "team:42"
    When the backend tells of a "red-card" about "team:42" of somebody whose gender is "<gender>"
    Then Ada's phone shows "<title>"

    Examples:
      | gender  | title                |
      | female  | Wyrzucona z boiska!  |
      | male    | Wyrzucony z boiska!  |
      | unknown | Czerwona kartka!     |

  Scenario: An event with its own words
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    And Bob's phone in the language "fi" is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" with the text "Nareszcie!" in "pl" and "At last!" in all others
    Then Ada's phone shows "Nareszcie!"
    And Bob's phone shows "At last!"

  Scenario Outline: An app that is connected gets the words in its language, too: <language>
    Given Ada's app in the language "<language>" is connected and follows "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend tells of a "goal" about "match:1" by "Sweden"
    Then Ada's app shows "<title>"
    And Bob's app shows "Goal for Sweden!"

    Examples:
      | language | title              |
      | pl-PL    | Gol: Sweden!       |
      | fi       | Goal for Sweden!   |

  Scenario: What an app missed it gets in its language
    Given Ada's app in the language "pl" is connected and follows "match:1"
    And Ada's app loses its connection
    When the backend tells of a "goal" about "match:1" by "Sweden"
    And Ada's app comes back
    Then Ada's app shows "Gol: Sweden!"

  Scenario: A missing word is noticed before anything is sent
    When the backend tells of a "goal" about "team:42" without saying by whom
    Then the event is refused, naming "params"

  Scenario: A text that is too long for the provider is noticed before anything is sent
    When the backend tells of a "goal" about "team:42" with 6000 bytes of data
    Then the event is refused, naming the bytes

  Scenario: A kick-off, at the time that each phone's clock shows
    Given Ada's phone in the language "pl" and the time zone "Europe/Warsaw" is subscribed to "kick-off" of "match:7"
    And Bob's phone in the language "en-GB" and the time zone "Europe/London" is subscribed to "kick-off" of "match:7"
    And Eve's phone in the language "pl" is subscribed to "kick-off" of "match:7"
    When the backend tells of a kick-off of "Sweden" about "match:7" at "2026-11-24T20:45:00+01:00" in the zone of each phone
    Then Ada's phone shows "Szwecja gra o 20:45"
    And Bob's phone shows "Sweden play at 19:45"
    And Eve's phone shows "Szwecja gra o 20:45 GMT+1"

  Scenario: A time zone that does not exist is noticed before anything is sent
    When the backend tells of a kick-off of "Sweden" about "match:7" at "2026-11-24T20:45:00+01:00" in the zone "Mars/Base"
    Then the event is refused, naming "params"

  Scenario: A topic that has no fallback is told only in the languages that have it
    Given Ada's phone in the language "pl" is subscribed to "derby" of "team:42"
    And Bob's phone in the language "en-GB" is subscribed to "derby" of "team:42"
    And Eve's phone in the language "fi" is subscribed to "derby" of "team:42"
    When the backend tells of a "derby" about "team:42" by "Sweden"
    Then Ada's phone shows "Derby: Sweden!"
    And Bob's phone shows "Derby goal for Sweden!"
    And Eve's phone is not pushed
    And the event counts 1 device as suppressed for "untranslated"

  Scenario: New translations are taken in without a restart
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    When the translators change the Polish "Gol: %{team}!" to "Bramka: %{team}!"
    And the operator reloads the texts
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone shows "Bramka: Sweden!"

  Scenario: A translation with a wrong placeholder changes nothing, and never reaches a phone
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    When the translators change the Polish "Gol: %{team}!" to "Bramka: %{tem}!"
    And the operator reloads the texts, and is told of the mistake "%{tem}"
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone shows "Gol: Sweden!"

  @one
  Scenario: The server starts with a broken catalogue, and tells what it told before
    Of several servers another one leads then, which has read the texts before.

    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    When the translators change the Polish "msgid" to "msgidd"
    And the server is killed and started again
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone shows "Gol: Sweden!"

  Scenario: Mending a text in English silences no language
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    And Bob's phone in the language "en" is subscribed to "goal" of "team:42"
    When the English "Goal for %{team}!" is changed to "A goal for %{team}!" and merged into the translations
    And the operator reloads the texts
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone shows "Gol: Sweden!"
    And Bob's phone shows "A goal for Sweden!"

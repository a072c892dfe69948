"""The words and sentences from which `zoo.data.text.sample` writes its chronicles.

In braces stands what the document has drawn for one of its people: `name`, `street`, `colour`, ... A kind of
FACTS has two lists: how it is told first, and how it is told again.
"""

SYLLABLES = (
    ("ar", "bel", "cor", "da", "el", "fen", "gal", "hol", "ir", "jo", "ka", "lo", "mar", "ne", "or", "pel",
     "qui", "ro", "sa", "tol", "ul", "ve", "wy", "yn", "za", "bra", "cle", "dro", "fli", "gru", "sto",
     "tre"),
    ("bi", "co", "dan", "es", "fa", "gor", "hi", "lan", "mo", "nis", "pa", "rin", "so", "ta", "un", "va",
     "wen", "xo", "ba", "dri", "lle", "mu", "ska", "the"),
    ("bar", "dell", "fin", "gart", "ka", "lin", "mond", "na", "ris", "stan", "ton", "va", "wick", "zel",
     "ra", "que"),
)  # fmt: skip

COLOURS = (
    "amber", "black", "blue", "brown", "crimson", "golden", "green", "grey", "ivory", "lilac", "orange",
    "pink", "purple", "red", "rusty", "scarlet", "silver", "turquoise", "white", "yellow",
)  # fmt: skip

BUILDINGS = (
    "house", "cottage", "tower", "barn", "mill", "cabin", "lodge", "hut", "manor", "shed", "farmhouse", "inn",
)  # fmt: skip

TRADES = (
    "baker", "beekeeper", "blacksmith", "bookbinder", "brewer", "carpenter", "clockmaker", "cobbler",
    "doctor", "farmer", "ferryman", "fisher", "gardener", "glazier", "locksmith", "mason", "miller",
    "musician", "painter", "potter", "sailor", "shepherd", "tailor", "teacher", "thatcher", "weaver",
)  # fmt: skip

MATERIALS = (
    "amber", "bone", "brass", "bronze", "clay", "copper", "crystal", "glass", "golden", "iron", "ivory",
    "leather", "marble", "oak", "paper", "pewter", "silver", "stone", "velvet", "willow",
)  # fmt: skip

OBJECTS = (
    "anchor", "bell", "bowl", "box", "bracelet", "brooch", "comb", "compass", "cup", "drum", "flute",
    "hammer", "key", "knife", "lantern", "locket", "mask", "medal", "mirror", "ring", "spoon", "telescope",
    "whistle", "wheel",
)  # fmt: skip

ANIMALS = (
    "badger", "cat", "crow", "dog", "donkey", "duck", "ferret", "fox", "goat", "goose", "hen", "horse",
    "jackdaw", "mule", "otter", "owl", "parrot", "pig", "raven", "sheep", "squirrel", "tortoise",
)  # fmt: skip

PRONOUNS = (("she", "her", "her"), ("he", "him", "his"))

HOURS = (
    "before dawn", "at first light", "in the morning", "towards noon", "after lunch",
    "late in the afternoon", "at dusk", "in the evening", "before midnight", "on market day",
    "on the last day of the week", "after the harvest", "when the bells had rung", "an hour later",
    "the next day", "two days later", "that same night",
)  # fmt: skip

WEATHERS = (
    "rain fell without a pause", "a warm wind came over the hills", "fog lay on the fields",
    "the sky was clear", "snow covered the roofs", "thunder rolled far away",
    "the sun burned on the stones", "frost was on the grass", "clouds hung low",
    "a rainbow stood in the east", "the stars were out", "leaves blew through the streets",
    "the air smelled of hay", "not a breath stirred",
)  # fmt: skip

WAYS = (
    "slowly", "in a hurry", "without a word", "with a smile", "with some doubt", "once more",
    "for the first time", "as always", "rather late", "very early", "singing softly",
    "in the best of moods", "with tired feet", "against all advice", "by the longer road", "out of breath",
)  # fmt: skip

OPENINGS = (
    "This is the chronicle of {village}, a village on the river {river}, as it was told to me.",
    "On the river {river} lies a village that its people call {village}.",
    "Whoever follows the river {river} far enough comes at last to {village}.",
    "Nothing ever happens in {village}, they say in the towns below; the river {river} knows better.",
)

EVENTS = (
    "{hour} {name} came to the bridge over the {river} {way}; {weather}.",
    "{weather} when {name} met {other} {hour}.",
    "{hour} {name} and {other} sat together by the {river}, and {weather}.",
    "{name} crossed the square of {village} {way}, though {weather}.",
    "{hour}, while {weather}, {other} looked for {name} all over {village}.",
    "nobody had seen {name} since the fair, until {other} found {them} {hour} by the well.",
    "{name} went out {hour} {way}, and {other} followed {way}.",
    "all of {village} was asleep when {name} knocked {way} at the door of {other}.",
)

FACTS = {
    "home": (
        (
            "{name} lived in the {colour} {building} in {street} Lane.",
            "The {colour} {building} in {street} Lane belonged to {name}.",
            "Everyone knew where {name} lived: in {street} Lane, in the {colour} {building}.",
        ),
        (
            "{name} went back to {street} Lane and lit the lamp in the {colour} {building}.",
            "There was smoke above the {colour} {building}, so {name} was at home in {street} Lane.",
            "In {street} Lane {name} swept the steps of the {colour} {building}.",
            "A letter for {name} had been left at the {colour} {building} in {street} Lane.",
            "The roof of {name} leaked again, for the {colour} {building} in {street} Lane was old.",
        ),
    ),
    "code": (
        (
            "The box of {name} opened with the number {code} and with no other.",
            "{name} had chosen the number {code} for {their} box, and told nobody else.",
            "As the number of {their} box {name} had taken {code}.",
        ),
        (
            "{name} turned the wheels of {their} box to {code} and it sprang open.",
            "The box of {name} still opened at {code}.",
            "If you forget everything else, said {name}, remember that my box wants {code}.",
            "{name} wrote {code} into the sand, and wiped it away: it was the number of {their} box.",
        ),
    ),
    "thing": (
        (
            "{name} owned {a_thing}, the finest in {village}.",
            "From {their} grandmother {name} had {a_thing}.",
            "{name} never went out without the {thing} that an aunt had left to {them}.",
        ),
        (
            "{name} held the {thing} up to the light.",
            "Carefully {name} put the {thing} back into {their} pocket.",
            "The {thing} was missing, and {name} looked for it until it was found under a bench.",
            "{name} would have given anything but the {thing}.",
            "For the {thing} a trader offered {name} eleven coins, and was sent away.",
        ),
    ),
    "pet": (
        (
            "{name} kept {animal} and garden in good order; the {animal} was called {pet}.",
            "With {name} lived {a_animal} by the name of {pet}.",
            "The {animal} that {name} had raised was called {pet}.",
        ),
        (
            "{pet} the {animal} ran ahead, and {name} whistled for it.",
            "{name} shared {their} bread with {pet}, as the {animal} expected.",
            "Where {pet} was, {name} was not far: the {animal} saw to that.",
            "The {animal} of {name} had got loose, and half the village was calling for {pet}.",
        ),
    ),
    "trade": (
        (
            "{name} was the {trade} of {village}, and a good one.",
            "By trade {name} was a {trade}.",
            "{village} had only one {trade}, and that was {name}.",
        ),
        (
            "As a {trade}, {name} had to rise early.",
            "There was work for a {trade} that day, and so {name} was sent for.",
            "No {trade} is ever rich, said {name}.",
            "{name} had learned from an old {trade} in the hills, and it showed.",
        ),
    ),
}

HABITS = (
    "{they} thought of {other} and laughed.",
    "{they} walked {way} along the {river}, as {they} did every day.",
    "{they} had never been further than the mountains behind {village}.",
    "{weather}, and {they} did not mind.",
    "{they} had promised {other} to be on time.",
    "{they} counted the boats on the {river} {way}.",
    "{other} waved from the other side of the {river}.",
)

GREETINGS = (
    "A stranger turned to {name}.",
    "{other} had a question for {name}.",
    "{hour} a child pulled {name} by the sleeve.",
    "Somebody called to {name} from a cart.",
    "{name} was stopped by the guard of {village}.",
)

QUESTIONS = (
    ("Where do you live?", "In {street} Lane, in the {colour} {building}."),
    ("What is that {animal} called?", "{pet}, like no other {animal} in {village}."),
    ("Which number opens your box?", "It is {code}, but keep it to yourself."),
    ("What do you do all day?", "I am a {trade}, so I am never idle."),
    ("What are you carrying?", "Only my {thing}."),
    ("What is your name?", "{name}, the {trade} from {street} Lane."),
    ("Is this {village}?", "It is, and that is the {river}."),
)

LOANS = (
    "{name} lent the {thing} to {other}, who brought it back {hour}.",
    "{other} took {pet} the {animal} for a walk to please {name}.",
    "{other} slept in the {colour} {building} that night, as a guest of {name}.",
    "{name} showed {other} how to set a lock to {code}.",
)

PRESENCES = (
    "{weather}.",
    "The {river} was high that year.",
    "In {village} such things are remembered for a long time.",
    "Nobody spoke for a while, and {weather}.",
    "So the day went by.",
)

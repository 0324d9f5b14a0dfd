"""What the generated shop sells: products by store, best sellers first, and where its customers live."""

from __future__ import annotations

from typing import Final


def _listed(text: str) -> tuple[str, ...]:
    """The names of a text with several in a line."""
    return tuple(name for line in text.strip().splitlines() for name in line.split("|"))


_VIDEO_GAMES: Final = """
Angry Birds Season|Harbour Tycoon|Night Circuit|Moss Kingdom|Pixel Farmer 2|Sky Courier|Turbo Kart League
Deep Dungeon|Glass Samurai|Robot Bakery|Starfall Tactics|Chess Masters Online|Cat Café Simulator
Zombie Picnic|Neon Golf|Dragon Post|Planet Gardener|Ghost Train|Rally Legends: Snow|Castle & Crown
Puzzle Atelier|Sudoku 365|The Last Lighthouse|Football Director 26|Ocean Rescue|Alien Arcade|Word Wizard
Sushi Sprint|Bridge Engineer|Frost Trail|Samba Dance Party|Subway Detective|Volcano Runner|Mini Metropolis
Quiet Forest|Iron Skies|Marble Mayhem|Beat Factory|Time Smuggler|Pinball '88
"""

_BOOKS: Final = """
Pride and Prejudice|Moby-Dick|Frankenstein|Great Expectations|Jane Eyre|Dracula|The Time Machine
War and Peace|Crime and Punishment|Anna Karenina|Les Misérables|Don Quixote|The Odyssey|Middlemarch|Walden
Emma|Little Women|Treasure Island|The Count of Monte Cristo|Around the World in Eighty Days
Alice's Adventures in Wonderland|Dubliners|Candide|The Iliad|The War of the Worlds|Leaves of Grass
The Art of War|Wuthering Heights|Madame Bovary|Dead Souls|Faust|The Trial|Meditations
On the Origin of Species|A Room with a View|The Jungle Book|Peter Pan|The Secret Garden|Siddhartha
Heart of Darkness
"""

_MUSIC: Final = """
Goldberg Variations|The Four Seasons|Für Elise|Requiem in D minor|Winterreise|Symphony No. 9|Clair de Lune
Carmen|Boléro|The Planets|Gymnopédies|Nocturnes|Peer Gynt|Scheherazade|Má vlast|The Nutcracker|La traviata
Water Music|Messiah|Rhapsody in Blue|Maple Leaf Rag|Pictures at an Exhibition|The Swan|Canon in D|Ave Maria
Moonlight Sonata|The Magic Flute|Tosca|Brandenburg Concertos|Symphonie fantastique|Cello Suites
Enigma Variations|Finlandia|Hungarian Dances|Danse macabre|Eroica|Pavane|The Lark Ascending|Kreutzer Sonata
Adagio for Strings
"""

_FILMS: Final = """
Metropolis|Nosferatu|The General|Safety Last!|Sherlock Jr.|A Trip to the Moon|The Gold Rush|Sunrise|The Kid
City Lights|Faust (1926)|Intolerance|The Lodger|Wings|Pandora's Box|The Freshman|Häxan|Battleship Potemkin
Man with a Movie Camera|The Phantom of the Opera|The Lost World|Steamboat Willie|Greed|The Navigator
The Cameraman|Our Hospitality|Seven Chances|The Big Parade|Underworld|The Wind|Speedway|Peter Pan (1924)
The Iron Horse|Ben-Hur (1925)|Napoléon|Piccadilly|The Crowd|Street Angel|Seventh Heaven|The Circus
"""

_TOYS: Final = """
Wooden Blocks, 50 pieces|Spinning Top|Kite "Red Baron"|Marble Run XL|Puzzle 1000: Alps|Train Set
Doll's House|Yo-yo|Teddy Bear|Chess Set|Rocking Horse|Building Bricks|Water Rocket|Skipping Rope|Toy Piano
Sand Moulds|Magnet Letters|Finger Puppets|Telescope 60 mm|Microscope Kit|Frisbee|Stilts|Pogo Stick|Dominoes
Mikado|Ludo|Jack-in-the-box|Drum|Xylophone|Paint Box|Modelling Clay|Balance Bike|Scooter|Hoops|Soap Bubbles
Memory Game|Crane|Fire Engine|Tin Robot|Walkie-talkie
"""

_LOCATIONS: Final = """
Ohio|Georgia|California|Texas|New York|Oregon|Illinois|Ontario|Québec|Bavaria|Saxony|Île-de-France|Provence
Catalonia|Lombardy|Zürich|Vienna|Wallonia|Utrecht|Kent|Yorkshire|Scotland|Leinster|Skåne|Jutland|Uusimaa
Mazovia|Bohemia|Attica|São Paulo|Buenos Aires|Jalisco|Tokyo|Osaka|Seoul|Taipei|Karnataka|Punjab|Queensland
Otago|Gauteng
"""

_NAMES: Final = """
Curry|Ada|Bo|Chidi|Dana|Emre|Fay|Goran|Hana|Ines|Jun|Kofi|Lena|Mio|Nils|Olga|Pia|Quinn|Rosa|Sven|Tala|Uma
Vera|Wim|Xu
"""

STORES: Final = {
    "video_games": _listed(_VIDEO_GAMES),
    "books": _listed(_BOOKS),
    "music": _listed(_MUSIC),
    "films": _listed(_FILMS),
    "toys": _listed(_TOYS),
}
"""Forty products of each store."""

PRODUCTS: Final = tuple(
    (store, name)
    for rank in zip(*STORES.values(), strict=True)
    for store, name in zip(STORES, rank, strict=True)
)
"""All products as (store, name), best sellers of every store first."""

LOCATIONS: Final = _listed(_LOCATIONS)
NAMES: Final = _listed(_NAMES)

